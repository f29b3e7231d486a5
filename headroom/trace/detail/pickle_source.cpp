#include "headroom/trace/detail/pickle_source.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "headroom/trace/detail/fault.h"

namespace headroom::trace::pickle {

void Source::fault(std::uint64_t offset, const std::string& expected, const std::string& received,
                   std::string_view to_try) const {
  detail::fault(input_.name(), offset, expected, received, to_try);
}

void Source::refill(std::size_t needed) {
  input_.skip(std::exchange(at_, 0));
  window_ = input_.peek(kWindow);
  if (window_.size() < needed)
    fault(input_.position() + window_.size(), "the rest of a pickle", "the end of the file",
          "a complete copy of the file");
}

std::uint64_t Source::number(std::size_t bytes) {
  if (window_.size() - at_ < bytes) refill(bytes);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint64_t{static_cast<std::uint8_t>(window_[at_ + i])} << (8 * i);
  at_ += bytes;
  return value;
}

std::int64_t Source::signed_number(std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::size_t unused = 64 - 8 * bytes;
  return static_cast<std::int64_t>(number(bytes) << unused) >> unused;
}

double Source::big_endian_double() {
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | byte();
  return std::bit_cast<double>(bits);
}

std::string_view Source::bytes(std::uint64_t count, std::uint64_t most) {
  if (count > most)
    fault(offset(), "a text of at most " + std::to_string(most) + " bytes", std::to_string(count));
  if (count <= kWindow) {
    const auto size = static_cast<std::size_t>(count);
    if (window_.size() - at_ < size) refill(size);
    return window_.substr(std::exchange(at_, at_ + size), size);
  }
  // Grows only as bytes arrive, because the length in the file may be wrong.
  long_text_.clear();
  while (long_text_.size() < count) {
    if (at_ == window_.size()) refill(1);
    const auto missing = static_cast<std::size_t>(count) - long_text_.size();
    const std::string_view part = window_.substr(at_, missing);
    long_text_ += part;
    at_ += part.size();
  }
  return long_text_;
}

std::string_view Source::line(std::uint64_t most) {
  long_text_.clear();
  while (true) {
    if (at_ == window_.size()) refill(1);
    const std::size_t end = window_.find('\n', at_);
    long_text_ += window_.substr(at_, end - at_);
    at_ = std::min(end, window_.size());
    if (long_text_.size() > most)
      fault(offset(), "a line of at most " + std::to_string(most) + " bytes", "more");
    if (end == std::string_view::npos) continue;
    ++at_;
    return long_text_;
  }
}

void Source::skip(std::uint64_t count) {
  while (count > 0) {
    if (at_ == window_.size()) refill(1);
    const std::uint64_t part = std::min<std::uint64_t>(count, window_.size() - at_);
    at_ += static_cast<std::size_t>(part);
    count -= part;
  }
}

}  // namespace headroom::trace::pickle
