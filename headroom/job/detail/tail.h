// Keeps the last bytes of a stream in a ring buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::job {

class Tail {
 public:
  explicit Tail(std::size_t capacity) : capacity_(capacity) {}

  void add(std::string_view text) {
    if (text.size() > capacity_) text.remove_prefix(text.size() - capacity_);
    const std::size_t grown = std::min(text.size(), capacity_ - kept_.size());
    kept_.append(text.substr(0, grown));
    for (text.remove_prefix(grown); !text.empty();) {
      const std::size_t part = std::min(text.size(), capacity_ - oldest_);
      kept_.replace(oldest_, part, text.substr(0, part));
      oldest_ = (oldest_ + part) % capacity_;
      text.remove_prefix(part);
    }
  }

  [[nodiscard]] std::string text() const {
    return kept_.substr(oldest_) + kept_.substr(0, oldest_);
  }

 private:
  std::size_t capacity_;
  std::size_t oldest_ = 0;  // where the ring begins once it is full
  std::string kept_;
};

}  // namespace headroom::job
