// Exceptions that Headroom throws from LibTorch's own operators. Programs catch c10::Error there,
// so these derive from it; each is also an OperatorRefusal, which tells them from LibTorch's own
// errors.
//
//   try {
//     y = x.nonzero();
//   } catch (const libtorch::OperatorRefusal& refusal) {   // Headroom's
//   } catch (const c10::Error& error) {                    // LibTorch's
//   }
//
// Headroom's own functions throw the errors of base/error.h. A card that is out of memory always
// throws LibTorch's c10::OutOfMemoryError.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "headroom/base/error.h"

namespace headroom::libtorch {

class OperatorRefusal {
 public:
  virtual ~OperatorRefusal() = default;
  [[nodiscard]] virtual const char* what() const noexcept = 0;
};

// The operator is not simulated, or not on a card without data.
class NotSimulatedError final : public c10::NotImplementedError, public OperatorRefusal {
 public:
  explicit NotSimulatedError(const std::string& text) : c10::NotImplementedError(text, nullptr) {}
  explicit NotSimulatedError(const Complaint& complaint)
      : NotSimulatedError(to_string(complaint)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_without_backtrace(); }
};

// A card that does not exist, a tensor of a simulation that has ended, values that were never
// computed.
class DeviceError final : public c10::Error, public OperatorRefusal {
 public:
  explicit DeviceError(const std::string& text) : c10::Error(text, nullptr) {}
  explicit DeviceError(const Complaint& complaint) : DeviceError(to_string(complaint)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_without_backtrace(); }
};

}  // namespace headroom::libtorch
