// An open file descriptor, closed with its owner. Moving leaves the source without one.
#pragma once

#include <unistd.h>

#include <utility>

namespace headroom {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] bool is_open() const { return value_ >= 0; }
  void close() {
    if (value_ >= 0) ::close(std::exchange(value_, -1));
  }
  // The caller closes it.
  [[nodiscard]] int release() { return std::exchange(value_, -1); }

 private:
  int value_ = -1;
};

}  // namespace headroom
