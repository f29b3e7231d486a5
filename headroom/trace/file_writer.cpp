#include "headroom/trace/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/trace/detail/columns.h"
#include "headroom/trace/detail/file_form.h"
#include "headroom/trace/detail/zstd_frame.h"

namespace headroom::trace {
namespace {

// zstd's level: 1 is fast, 19 is small. At 3 writing takes about as long as reading.
constexpr int kCompressionLevel = 3;

// Many new names at once are spread over parts of about this size.
constexpr std::size_t kNameBytesPerPart = std::size_t{1} << 20;

std::string head_text(const About& about) {
  Json head{{"format", "headroom trace"},
            {"version", detail::kFormatVersion},
            {"written_by", "headroom " HEADROOM_VERSION},
            {"program", about.program},
            {"settings", about.settings},
            {"capacity_bytes", about.capacity ? Json(about.capacity->count) : Json()},
            {"times_are_known", about.times_are_known}};
  if (!about.is_within_capacity) head["within_capacity"] = false;
  if (!about.torch.empty()) head["torch"] = about.torch;
  for (const auto& [name, value] : about.facts) head["facts"].push_back({name, value});
  return to_line(head);
}

}  // namespace

struct TraceWriter::File {
  File(std::filesystem::path path, const Names& names, const TraceWriterOptions& options);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void begin(const About& about);
  void check_open() const;
  void check(const Event& event) const;
  void flush();
  void write_parts();
  void append_names(std::string& raw);
  void write_part(std::string_view tag, std::string_view raw, std::size_t events);
  void write(std::string_view bytes);
  void close();

  std::filesystem::path path_;
  const Names& names_;
  TraceWriterOptions options_;
  detail::Compressor compressor_{kCompressionLevel};
  int descriptor_ = -1;  // opened last: an earlier exception leaves nothing open
  bool failed_ = false;
  Bytes written_;
  std::vector<Event> events_;  // of the next part
  Name names_written_ = 1;     // every reader has the empty text
  std::size_t name_bytes_ = 0;
};

TraceWriter::File::File(std::filesystem::path path, const Names& names,
                        const TraceWriterOptions& options)
    : path_(std::move(path)), names_(names), options_(options) {
  options_.events_per_part = std::clamp(options_.events_per_part, 1U, detail::kMostEvents);
  events_.reserve(options_.events_per_part);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw WriteError("trace", "cannot write " + path_.string() + ": " + std::strerror(errno));
}

TraceWriter::File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceWriter::File::begin(const About& about) {
  write(detail::to_bytes(detail::Prefix{}));
  write_part(detail::kHeadTag, head_text(about), 0);
}

void TraceWriter::File::check_open() const {
  if (failed_ || descriptor_ < 0)
    throw WriteError(
        "trace", path_.string() +
                     (failed_ ? " is incomplete because an earlier write failed" : " is closed"));
}

void TraceWriter::File::check(const Event& event) const {
  if (const Name highest = std::max({event.module, event.operation, event.line});
      highest >= names_.size())
    throw UsageError(expectation("trace", "names below " + std::to_string(names_.size()),
                                 std::to_string(highest)));
  if (!detail::has_a_stream(event))
    throw UsageError(expectation("trace", "a stream below " + std::to_string(detail::kMostStreams),
                                 std::to_string(event.stream)));
  if (event.bytes.count < 0)
    throw UsageError(expectation("trace", "no negative size", std::to_string(event.bytes.count)));
}

// After an exception a part is missing, and with it names on which later parts rely.
void TraceWriter::File::flush() {
  check_open();
  try {
    write_parts();
  } catch (...) {
    failed_ = true;
    throw;
  }
}

// A part holds the names that its events are the first to use. Names alone may fill whole parts.
void TraceWriter::File::write_parts() {
  while (names_written_ < names_.size() || !events_.empty()) {
    std::string raw;
    append_names(raw);
    const bool all_names = names_written_ == names_.size();
    if (all_names) detail::append_columns(raw, events_);
    write_part(detail::kPartTag, raw, all_names ? events_.size() : 0);
    if (all_names) events_.clear();
  }
}

void TraceWriter::File::append_names(std::string& raw) {
  std::string texts;
  const Name first = names_written_;
  while (names_written_ < names_.size() && texts.size() < kNameBytesPerPart) {
    const std::string_view text = names_.text(names_written_);
    name_bytes_ += text.size();
    if (text.size() > detail::kLongestName || name_bytes_ > detail::kMostNameBytes ||
        names_written_ >= detail::kMostNames)
      throw UsageError(expectation("trace", "fewer and shorter names", detail::shown(text)));
    append_varint(texts, text.size());
    texts += text;
    ++names_written_;
  }
  append_varint(raw, first);
  append_varint(raw, names_written_ - first);
  raw += texts;
}

void TraceWriter::File::write_part(std::string_view tag, std::string_view raw, std::size_t events) {
  std::string frame;
  compressor_.append_frame(frame, raw);
  // A single write makes a kill in the middle unlikely.
  write(
      detail::to_bytes(detail::PartHeader{.tag = std::string(tag),
                                          .stored_bytes = static_cast<std::uint32_t>(frame.size()),
                                          .raw_bytes = static_cast<std::uint32_t>(raw.size()),
                                          .events = static_cast<std::uint32_t>(events)}) +
      frame);
}

void TraceWriter::File::write(std::string_view bytes) {
  try {
    write_all(descriptor_, bytes, path_);
  } catch (const WriteError&) {
    // Removes an incomplete part. This fails for a pipe, where it is not needed.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, written_.count);
    throw;
  }
  written_ += Bytes{static_cast<std::int64_t>(bytes.size())};
}

void TraceWriter::File::close() {
  if (descriptor_ < 0) return;
  flush();
  if (::close(std::exchange(descriptor_, -1)) != 0)
    throw WriteError("trace", "cannot write " + path_.string() + ": " + std::strerror(errno));
}

TraceWriter::TraceWriter(std::filesystem::path path, const About& about, const Names& names,
                         const TraceWriterOptions& options)
    : file_(std::make_unique<File>(std::move(path), names, options)) {
  file_->begin(about);
}

TraceWriter::~TraceWriter() {
  try {
    if (!file_->failed_) file_->close();
  } catch (...) {  // NOLINT(bugprone-empty-catch): close() reports errors
  }
}

void TraceWriter::append(const Event& event) {
  file_->check_open();
  file_->check(event);
  file_->events_.push_back(event);
  if (file_->events_.size() >= file_->options_.events_per_part) flush();
}

void TraceWriter::flush() {
  file_->flush();
}

void TraceWriter::close() {
  file_->close();
}

Bytes TraceWriter::written() const {
  return file_->written_;
}

}  // namespace headroom::trace
