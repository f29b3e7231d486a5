// The input of a reader: a file, standard input, or bytes in memory. It is read front to back
// through a window of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/descriptor.h"

namespace headroom::trace {

class Input {
 public:
  // Throws InputError if the file cannot be opened. "-" is standard input.
  [[nodiscard]] static Input file(const std::filesystem::path& path);
  // The caller keeps the bytes, which must outlive the Input.
  [[nodiscard]] static Input memory(std::string name, std::string_view bytes);

  // Returns up to `wanted` of the next bytes without consuming them; fewer only at the end. Valid
  // until the next call. Throws InputError if reading fails.
  [[nodiscard]] std::string_view peek(std::size_t wanted);
  // Consumes bytes that peek has returned.
  void skip(std::size_t count);

  [[nodiscard]] const std::string& name() const { return name_; }  // the path, for messages
  [[nodiscard]] std::uint64_t position() const { return position_; }
  // std::nullopt for a pipe.
  [[nodiscard]] std::optional<std::uint64_t> size() const { return size_; }

 private:
  Input() = default;

  std::string name_;
  Descriptor descriptor_;     // not open: memory
  std::string_view memory_;   // not yet consumed
  std::vector<char> window_;  // file: bytes [begin_, end_) are read and not yet consumed
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t position_ = 0;
  std::optional<std::uint64_t> size_;
};

}  // namespace headroom::trace
