#include "headroom/trace/detail/file_form.h"

#include <array>

namespace headroom::trace::detail {
namespace {

template <typename Number>
void append_number(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) to += static_cast<char>(number >> (8 * i));
}

template <typename Number>
Number number_at(std::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;)
    number = number << 8U | static_cast<unsigned char>(bytes[at + i]);
  return static_cast<Number>(number);
}

// The same hash on every machine; changing one byte always changes it.
std::uint32_t fnv1a(std::string_view bytes) {
  std::uint32_t hash = 2166136261U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

std::string with_check(std::string bytes) {
  append_number(bytes, fnv1a(bytes));
  return bytes;
}

bool has_check(std::string_view bytes) {
  const std::size_t size = bytes.size() - sizeof(std::uint32_t);
  return number_at<std::uint32_t>(bytes, size) == fnv1a(bytes.substr(0, size));
}

}  // namespace

std::string to_bytes(const Prefix& prefix) {
  std::string bytes(kMagic);
  append_number(bytes, prefix.version);
  append_number(bytes, prefix.needs);
  return with_check(std::move(bytes));
}

std::optional<Prefix> prefix_of(std::string_view bytes) {
  if (bytes.size() != Prefix::kSize || !bytes.starts_with(kMagic) || !has_check(bytes)) return {};
  return Prefix{.version = number_at<std::uint16_t>(bytes, 8),
                .needs = number_at<std::uint16_t>(bytes, 10)};
}

std::string to_bytes(const PartHeader& header) {
  std::string bytes(header.tag);
  append_number(bytes, header.stored_bytes);
  append_number(bytes, header.raw_bytes);
  append_number(bytes, header.events);
  return with_check(std::move(bytes));
}

std::optional<PartHeader> part_header_of(std::string_view bytes) {
  if (bytes.size() != PartHeader::kSize || !has_check(bytes)) return {};
  return PartHeader{.tag = std::string(bytes.substr(0, 4)),
                    .stored_bytes = number_at<std::uint32_t>(bytes, 4),
                    .raw_bytes = number_at<std::uint32_t>(bytes, 8),
                    .events = number_at<std::uint32_t>(bytes, 12)};
}

bool Cursor::take_long(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
    const std::uint64_t byte = static_cast<unsigned char>(*at_++);
    if (shift == 63 && byte > 1) return false;
    value |= (byte & 0x7fU) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool Cursor::take(std::uint64_t count, std::string_view& bytes) {
  if (count > static_cast<std::uint64_t>(end_ - at_)) return false;
  bytes = {at_, static_cast<std::size_t>(count)};
  at_ += count;
  return true;
}

}  // namespace headroom::trace::detail
