// The format of docs/formats/trace.md as constants and small functions that reader and writer
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/varint.h"
#include "headroom/trace/detail/fault.h"

namespace headroom::trace::detail {

// No text file begins with the first byte; a transfer that converts line ends damages the last
// four.
inline constexpr std::string_view kMagic{"\x89HRT\r\n\x1a\n", 8};
inline constexpr std::uint16_t kFormatVersion = 1;
// The oldest reader that can read the files written now.
inline constexpr std::uint16_t kNeedsVersion = 1;

// Limits of one part. A reader holds one part at a time, so these bound its memory.
inline constexpr std::uint32_t kMostEvents = std::uint32_t{1} << 16;
inline constexpr std::uint32_t kMostRawBytes = std::uint32_t{8} << 20;
inline constexpr std::uint32_t kMostStoredBytes = kMostRawBytes + (std::uint32_t{1} << 16);
inline constexpr std::size_t kLongestName = std::size_t{64} << 10;

struct Prefix {
  static constexpr std::size_t kSize = 16;
  std::uint16_t version = kFormatVersion;
  std::uint16_t needs = kNeedsVersion;
};
[[nodiscard]] std::string to_bytes(const Prefix& prefix);
// std::nullopt if these 16 bytes are damaged.
[[nodiscard]] std::optional<Prefix> prefix_of(std::string_view bytes);

inline constexpr std::string_view kHeadTag = "HEAD";
inline constexpr std::string_view kPartTag = "PART";

// Precedes each part.
struct PartHeader {
  static constexpr std::size_t kSize = 20;
  std::string tag;  // four letters
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t events = 0;
};
[[nodiscard]] std::string to_bytes(const PartHeader& header);
[[nodiscard]] std::optional<PartHeader> part_header_of(std::string_view bytes);

// The columns of a part. A reader skips columns that it does not know.
enum class Column : std::uint8_t {
  kind = 1,
  time,
  address,
  bytes,
  stream,
  step,
  module,
  operation,
  device,
  category,
  phase,
  line,
};

// Reads the bytes of a part, number by number.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  // False if the bytes end, or the number has more than 64 bits.
  bool take(std::uint64_t& value) {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) {
      value = static_cast<unsigned char>(*at_++);
      return true;
    }
    return take_long(value);
  }
  // False if fewer than `count` bytes are left.
  bool take(std::uint64_t count, std::string_view& bytes);
  [[nodiscard]] bool is_over() const { return at_ == end_; }
  [[nodiscard]] std::string_view rest() const {
    return {at_, static_cast<std::size_t>(end_ - at_)};
  }

 private:
  bool take_long(std::uint64_t& value);

  const char* at_;
  const char* end_;
};

}  // namespace headroom::trace::detail
