// Reads the bytes of a pickle front to back and gives their offsets for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headroom/trace/input.h"

namespace headroom::trace::pickle {

class Source {
 public:
  // The input must outlive this object. The destructor leaves it after the last byte taken.
  explicit Source(Input& input) : input_(input) {}
  ~Source() { input_.skip(at_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] std::uint64_t offset() const { return input_.position() + at_; }
  std::uint8_t byte() {
    if (at_ == window_.size()) refill(1);
    return static_cast<std::uint8_t>(window_[at_++]);
  }
  // A little-endian number of `bytes` bytes (at most 8).
  std::uint64_t number(std::size_t bytes);
  // The same with a sign.
  std::int64_t signed_number(std::size_t bytes);
  double big_endian_double();
  // Valid until the next call. `most` limits the length, and so the memory.
  std::string_view bytes(std::uint64_t count, std::uint64_t most);
  // Up to the line's end, which is consumed too.
  std::string_view line(std::uint64_t most);
  void skip(std::uint64_t count);

  // Throws InputError for the value that began at this byte.
  [[noreturn]] void fault(std::uint64_t offset, const std::string& expected,
                          const std::string& received, std::string_view to_try = {}) const;

 private:
  static constexpr std::size_t kWindow = std::size_t{64} << 10;

  // Shows at least `needed` bytes in the window; `needed` is at most kWindow.
  void refill(std::size_t needed);

  Input& input_;
  std::string_view window_;
  std::size_t at_ = 0;
  std::string long_text_;
};

}  // namespace headroom::trace::pickle
