// The bytes a reader reads: a file, standard input, or a text in memory, taken front to back
// through a window of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::trace {

class Input {
 public:
  // Throws InputError when it cannot be opened. "-" is standard input.
  [[nodiscard]] static Input file(const std::filesystem::path& path);
  // The bytes stay the caller's and must live as long.
  [[nodiscard]] static Input memory(std::string name, std::string_view bytes);

  Input(Input&& other) noexcept;
  Input& operator=(Input&& other) noexcept;
  ~Input();

  // Up to `wanted` of the next bytes without taking them; fewer only at the end. Valid until the
  // next call. Throws InputError when the system cannot read.
  [[nodiscard]] std::string_view peek(std::size_t wanted);
  // Takes bytes that peek has shown.
  void skip(std::size_t count);

  [[nodiscard]] const std::string& name() const { return name_; }  // for messages: the path
  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const { return size_; }  // nothing: a pipe

 private:
  Input() = default;

  std::string name_;
  int descriptor_ = -1;       // -1: memory
  std::string_view memory_;   // what is left of it
  std::vector<char> window_;  // file: bytes read and not taken are [begin_, end_)
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t position_ = 0;
  std::optional<std::uint64_t> size_;
};

}  // namespace headroom::trace
