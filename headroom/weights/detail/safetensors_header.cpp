#include "headroom/weights/detail/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/weights/detail/safetensors_json.h"

namespace headroom::weights::detail {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the limit of the format's own library

// Throws an error that names the tensor and the byte.
[[noreturn]] void fail(const SafetensorsEntry& of, const std::string& source, std::uint64_t byte,
                       const std::string& expected, const std::string& received) {
  throw InputError(expectation("safetensors",
                               fmt::format("{} in {}, tensor {}, byte {}", expected, source,
                                           in_quotes(of.tensor.name), byte),
                               received));
}

std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return {};
  return result;
}

// The bytes that type and shape take; std::nullopt if they overflow or end within a byte.
std::optional<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
  std::optional<std::uint64_t> bits = entry.tensor.type->bits;
  for (const std::uint64_t size : entry.shape) {
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
    if (bits) bits = product(*bits, size);
  }
  if (!bits || *bits % 8 != 0) return {};
  return *bits / 8;
}

std::string text_of(const std::vector<std::uint64_t>& numbers) {
  return to_line(Json(numbers));
}

// Checks one entry alone; `placed` checks the positions of its bytes.
void check(const SafetensorsEntry& entry, const std::string& source) {
  if (entry.tensor.type == nullptr) fail(entry, source, entry.place, "a key `dtype`", "none");
  if (!entry.has_shape) fail(entry, source, entry.place, "a key `shape`", "none");
  if (!entry.has_offsets) fail(entry, source, entry.place, "a key `data_offsets`", "none");
  const auto& at = entry.offsets;
  if (at.size() != 2 || at[0] > at[1])
    fail(entry, source, entry.place, "a beginning and an end for `data_offsets`", text_of(at));
  const std::string kind = fmt::format("{} of {}", entry.tensor.type->name, text_of(entry.shape));
  const auto bytes = bytes_of(entry);
  if (!bytes) fail(entry, source, entry.place, "a shape whose bytes can be counted", kind);
  if (*bytes != at[1] - at[0])
    fail(entry, source, entry.place, fmt::format("{} bytes, which {} has", *bytes, kind),
         fmt::format("{} ({})", at[1] - at[0], text_of(at)));
}

// Checks that the tensors' bytes follow each other from `data` to the end of the file.
std::vector<StoredTensor> placed(std::vector<SafetensorsEntry> entries, std::uint64_t data,
                                 std::uint64_t size, const std::string& source) {
  std::sort(
      entries.begin(), entries.end(),
      [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.offsets < b.offsets; });
  std::uint64_t next = 0;
  std::vector<StoredTensor> tensors;
  for (SafetensorsEntry& entry : entries) {
    if (entry.offsets[1] > size - data)
      fail(entry, source, entry.place,
           fmt::format("bytes within the {} that the file has after its head (is it complete?)",
                       size - data),
           text_of(entry.offsets));
    if (entry.offsets[0] != next)
      fail(entry, source, data + next,
           fmt::format("its beginning at byte {} of the data, where the tensor before it ends,",
                       next),
           std::to_string(entry.offsets[0]));
    next = entry.offsets[1];
    entry.tensor.begin = data + entry.offsets[0];
    entry.tensor.end = data + entry.offsets[1];
    entry.tensor.shape.assign(entry.shape.begin(), entry.shape.end());
    tensors.push_back(std::move(entry.tensor));
  }
  if (next != size - data)
    throw InputError(expectation(
        "safetensors",
        fmt::format("the end of {} at byte {}, where its last tensor ends", source, data + next),
        std::to_string(size) + " bytes"));
  return tensors;
}

std::uint64_t header_length(std::string_view file, const std::string& source) {
  if (file.size() < kLengthBytes)
    throw InputError(expectation("safetensors", "8 bytes with the length of the head in " + source,
                                 "a file of " + std::to_string(file.size())));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8U | static_cast<unsigned char>(file[i]);
  if (length > kMostHeaderBytes)
    throw InputError(expectation("safetensors",
                                 fmt::format("a head of at most 100 MB in {}, byte 0", source),
                                 std::to_string(length) + " bytes"));
  if (length > file.size() - kLengthBytes)
    throw InputError(
        expectation("safetensors",
                    fmt::format("a head within the file in {}, byte 0 (is it complete?)", source),
                    fmt::format("{} bytes in a file of {}", length, file.size())));
  return length;
}

}  // namespace

std::vector<StoredTensor> read_safetensors_header(std::string_view file,
                                                  const std::string& source) {
  const std::uint64_t length = header_length(file, source);
  const std::string_view text = file.substr(kLengthBytes, length);
  std::vector<SafetensorsEntry> entries = read_safetensors_json(text, kLengthBytes, source);
  for (const SafetensorsEntry& entry : entries) check(entry, source);
  return placed(std::move(entries), kLengthBytes + length, file.size(), source);
}

}  // namespace headroom::weights::detail
