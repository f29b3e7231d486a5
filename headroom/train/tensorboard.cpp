#include "headroom/train/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/time.h"
#include "headroom/base/varint.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

// ---- Protocol Buffers (protobuf.dev/programming-guides/encoding): a message is its fields one
// after another, each with its number, the form of its value, and the value.

enum class WireForm : std::uint64_t { varint = 0, fixed_64 = 1, bytes = 2, fixed_32 = 5 };

template <typename Unsigned>
std::string little_endian(Unsigned number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  append_varint(bytes, number);
  return bytes;
}

std::string field(std::uint64_t number, WireForm form, const std::string& value) {
  return varint(number << 3 | static_cast<std::uint64_t>(form)) + value;
}
std::string field(std::uint64_t number, std::uint64_t value) {
  return field(number, WireForm::varint, varint(value));
}
std::string field(std::uint64_t number, double value) {
  return field(number, WireForm::fixed_64, little_endian(std::bit_cast<std::uint64_t>(value)));
}
std::string field(std::uint64_t number, float value) {
  return field(number, WireForm::fixed_32, little_endian(std::bit_cast<std::uint32_t>(value)));
}
std::string field(std::uint64_t number, std::string_view value) {
  return field(number, WireForm::bytes, varint(value.size()).append(value));
}

// ---- Messages. The numbers are those of tensorflow/core/util/event.proto and, in
// tensorflow/core/framework, of summary.proto, tensor.proto and types.proto.

std::string event_message(std::int64_t step, const std::string& what) {
  const double wall_time = static_cast<double>(wall_time_ns()) * 1e-9;
  return field(1, wall_time) + field(2, static_cast<std::uint64_t>(step)) + what;
}

std::string version_message() {
  return field(3, "brain.Event:2");
}

std::string session_start() {
  constexpr std::uint64_t kStart = 1;
  return field(7, field(1, kStart));
}

// A Summary of one value.
std::string summary_message(std::string_view tag, const std::string& value) {
  return field(5, field(1, field(1, tag) + value));
}

// A TensorProto of one string, and the metadata that sends it to the plugin "text".
std::string text_value(std::string_view text) {
  constexpr std::uint64_t kString = 7, kTensorData = 2;
  const std::string plugin = field(1, "text");
  const std::string metadata = field(1, plugin) + field(4, kTensorData);
  const std::string tensor = field(1, kString) + field(8, text);
  return field(8, tensor) + field(9, metadata);
}

// ---- Records

// TensorFlow's masking (tensorflow/core/lib/hash/crc32c.h).
std::string masked_checksum(std::string_view bytes) {
  constexpr std::uint32_t kDelta = 0xa282ead8U;
  return little_endian(std::rotr(crc32c(bytes), 15) + kDelta);
}

std::string record_of(const std::string& content) {
  const std::string length = little_endian(std::uint64_t{content.size()});
  return length + masked_checksum(length) + content + masked_checksum(content);
}

// ---- The file

// As TensorFlow names it (tensorflow/core/util/events_writer.cc), with the PID and the first free
// number, because two runs may begin within one second.
Descriptor make_event_file(fs::path& path, const fs::path& folder) {
  char host[256] = "localhost";
  static_cast<void>(::gethostname(host, sizeof host - 1));
  const std::string name = "events.out.tfevents." + std::to_string(wall_time_ns() / 1'000'000'000) +
                           "." + host + "." + std::to_string(::getpid()) + ".";
  for (int n = 0;; ++n) {
    path = folder / (name + std::to_string(n));
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (file.is_open()) return file;
    if (errno != EEXIST) throw WriteError(write_failure(path, errno));
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // reflected
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
  }
  return ~crc;
}

EventFile::EventFile(const fs::path& folder, std::int64_t first_step) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw WriteError(write_failure(folder, error.value()));
  file_ = make_event_file(path_, folder);
  // TensorBoard drops later steps at a start that is not the folder's first. The first file has one
  // too, or the second file's start would count as the first
  // (tensorboard/backend/event_processing/plugin_event_accumulator.py).
  waiting_ = record_of(event_message(0, version_message())) +
             record_of(event_message(first_step, session_start()));
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const WriteError&) {  // the file keeps its events
  }
}

void EventFile::scalar(std::string_view tag, double value, std::int64_t step) {
  waiting_ +=
      record_of(event_message(step, summary_message(tag, field(2, static_cast<float>(value)))));
}

void EventFile::text(std::string_view tag, std::string_view text, std::int64_t step) {
  waiting_ += record_of(event_message(step, summary_message(tag, text_value(text))));
}

void EventFile::flush() {
  const std::string records = std::exchange(waiting_, {});
  try {
    write_all(file_.get(), records, path_);
  } catch (const WriteError&) {
    // TensorBoard reads nothing behind half a record. If it cannot be cut off, none may follow.
    if (::ftruncate(file_.get(), size_) != 0) file_.close();
    throw;
  }
  size_ += static_cast<std::int64_t>(records.size());
}

}  // namespace headroom::train
