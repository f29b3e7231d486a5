// Writes a pickle of protocol 2, the newest that every reader of snapshots knows: Python,
// memory_viz's own reader in JavaScript (protocols 2 to 4, of each a part) and LibTorch's. A text
// is written once and named by a number afterwards.
//
//   std::string bytes;
//   PickleEmitter pickle(bytes);
//   pickle.begin();
//   pickle.open_dict();
//   pickle.text("answer"), pickle.integer(42);
//   pickle.close_dict();
//   pickle.end();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headroom::trace::pickle {

// Numbers of remembered values, given out once in a file.
struct MemoNumbers {
  std::uint32_t next = 0;
};

class PickleEmitter {
 public:
  // Appends to `bytes`, which the caller may empty at any time. Parts of a pickle that are written
  // apart and put together later share the numbers, and nothing else.
  explicit PickleEmitter(std::string& bytes, MemoNumbers& numbers)
      : bytes_(&bytes), numbers_(&numbers) {}

  void begin();  // of the pickle
  void end();

  void boolean(bool value);
  void integer(std::int64_t value);
  // UsageError for 2^63 or more, which not all viewers can read.
  void address(std::uint64_t value);
  void number(double value);
  // Bytes that are no UTF-8 become U+FFFD: Python refuses them.
  void text(std::string_view text);

  void open_dict();
  void close_dict();  // what came between was key, value, key, value...
  // A long list is several parts, because readers hold a part on their stacks.
  void open_list();
  void open_part();
  void close_part();
  void pair(std::int64_t first, std::int64_t second);  // a tuple

  // Remembers the value just finished; `recall` gives it again.
  std::uint32_t remember();
  void recall(std::uint32_t number);

 private:
  void byte(int value) { *bytes_ += static_cast<char>(value); }
  void little_endian(std::uint64_t value, int count);

  std::string* bytes_;
  MemoNumbers* numbers_;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

}  // namespace headroom::trace::pickle
