// Writes a pickle of protocol 2, the newest that all readers of snapshots support: Python,
// LibTorch, and memory_viz's own reader in JavaScript (parts of protocols 2 to 4). Each text is
// written once and recalled by number afterwards.
//
//   std::string bytes;
//   MemoNumbers numbers;
//   PickleEmitter pickle(bytes, numbers);
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

// Memo numbers, unique within a file.
struct MemoNumbers {
  std::uint32_t next = 0;
};

class PickleEmitter {
 public:
  // Appends to `bytes`, which the caller may empty at any time. Parts of a pickle that are written
  // separately and joined later share `numbers`, and nothing else.
  explicit PickleEmitter(std::string& bytes, MemoNumbers& numbers)
      : bytes_(&bytes), numbers_(&numbers) {}

  void begin();  // begins the pickle
  void end();

  void boolean(bool value);
  void integer(std::int64_t value);
  // Throws UsageError for 2^63 or more, which some viewers cannot read.
  void address(std::uint64_t value);
  void number(double value);
  // Replaces invalid UTF-8, which Python refuses, by U+FFFD.
  void text(std::string_view text);

  void open_dict();
  void close_dict();  // the calls in between: key, value, key, value...
  // Write a long list in several parts, because readers hold a whole part on their stack.
  void open_list();
  void open_part();
  void close_part();
  void pair(std::int64_t first, std::int64_t second);  // a tuple

  // Remembers the value just written; `recall` refers to it again.
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
