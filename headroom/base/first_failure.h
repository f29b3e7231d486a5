// Runs pieces of work one after another and keeps the exception of the first that throws.
//
//   FirstFailure failure;
//   failure.then([&] { read(); });      // skipped after a failure
//   failure.then([&] { change(); });
//   failure.always([&] { close(); });   // runs in any case
//   failure.rethrow();                  // if there was one
#pragma once

#include <exception>

namespace headroom {

class FirstFailure {
 public:
  template <typename Work>
  void then(const Work& work) {
    if (!first_) always(work);
  }
  template <typename Work>
  void always(const Work& work) {
    try {
      work();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }

  [[nodiscard]] explicit operator bool() const { return first_ != nullptr; }
  [[nodiscard]] const std::exception_ptr& get() const { return first_; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace headroom
