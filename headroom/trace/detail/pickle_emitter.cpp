#include "headroom/trace/detail/pickle_emitter.h"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"

namespace headroom::trace::pickle {
namespace {

std::string valid_utf8(std::string_view text) {
  return parse_json(to_line(Json(std::string(text))), "a text").get<std::string>();
}

// Length in two's complement, at least one byte.
int length_of(std::int64_t value) {
  int bytes = 1;
  while (bytes < 8 && value >> (8 * bytes - 1) != 0 && value >> (8 * bytes - 1) != -1) ++bytes;
  return bytes;
}

}  // namespace

void PickleEmitter::little_endian(std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) byte(static_cast<int>(value >> (8 * i) & 0xFF));
}

void PickleEmitter::begin() {
  byte(0x80);  // PROTO
  byte(2);
}

void PickleEmitter::end() {
  byte('.');
}

void PickleEmitter::boolean(bool value) {
  byte(value ? 0x88 : 0x89);
}

void PickleEmitter::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value <= 0xFF) {
    byte('K');  // BININT1
    little_endian(bits, 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    byte('M');  // BININT2
    little_endian(bits, 2);
  } else if (length_of(value) <= 4) {
    byte('J');  // BININT
    little_endian(bits, 4);
  } else {
    byte(0x8a);  // LONG1
    byte(length_of(value));
    little_endian(bits, length_of(value));
  }
}

void PickleEmitter::address(std::uint64_t value) {
  if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    throw UsageError(expectation("trace", "addresses below 2^63, for a snapshot",
                                 std::to_string(value), "a replay, which gives addresses"));
  integer(static_cast<std::int64_t>(value));
}

void PickleEmitter::number(double value) {
  byte('G');  // BINFLOAT, big-endian
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) byte(static_cast<int>(bits >> (8 * i) & 0xFF));
}

void PickleEmitter::text(std::string_view text) {
  std::string key(text);
  if (const auto known = texts_.find(key); known != texts_.end()) return recall(known->second);
  const std::string valid = valid_utf8(text);
  byte('X');  // BINUNICODE
  little_endian(valid.size(), 4);
  *bytes_ += valid;
  texts_.emplace(std::move(key), remember());
}

void PickleEmitter::open_dict() {
  *bytes_ += "}(";  // EMPTY_DICT, MARK
}

void PickleEmitter::close_dict() {
  byte('u');  // SETITEMS
}

void PickleEmitter::open_list() {
  byte(']');
}

void PickleEmitter::open_part() {
  byte('(');
}

void PickleEmitter::close_part() {
  byte('e');  // APPENDS
}

void PickleEmitter::pair(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  byte(0x86);  // TUPLE2
}

std::uint32_t PickleEmitter::remember() {
  const std::uint32_t number = numbers_->next++;
  const bool is_small = number <= 0xFF;
  byte(is_small ? 'q' : 'r');  // BINPUT, LONG_BINPUT
  little_endian(number, is_small ? 1 : 4);
  return number;
}

void PickleEmitter::recall(std::uint32_t number) {
  const bool is_small = number <= 0xFF;
  byte(is_small ? 'h' : 'j');  // BINGET, LONG_BINGET
  little_endian(number, is_small ? 1 : 4);
}

}  // namespace headroom::trace::pickle
