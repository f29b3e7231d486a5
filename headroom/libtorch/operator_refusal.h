// What Headroom throws out of LibTorch's own operators. A program on LibTorch catches c10::Error
// there, so these are; and each is an OperatorRefusal, by which they can be told from LibTorch's
// own.
//
//   try {
//     y = x.nonzero();
//   } catch (const libtorch::OperatorRefusal& refusal) {   // Headroom's
//   } catch (const c10::Error& error) {                    // LibTorch's
//   }
//
// Headroom's own functions throw what base/error.h has. An out-of-memory of a card is LibTorch's
// c10::OutOfMemoryError, wherever it is met.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace headroom::libtorch {

class OperatorRefusal {
 public:
  virtual ~OperatorRefusal() = default;
  [[nodiscard]] virtual const char* what() const noexcept = 0;
};

// An operator that is not simulated, or not on a card without data.
class NotSimulatedError final : public c10::NotImplementedError, public OperatorRefusal {
 public:
  explicit NotSimulatedError(const std::string& text) : c10::NotImplementedError(text, nullptr) {}
  [[nodiscard]] const char* what() const noexcept override { return what_without_backtrace(); }
};

// A card that is not there, a tensor of a simulation that has ended, values that were never made.
class DeviceError final : public c10::Error, public OperatorRefusal {
 public:
  explicit DeviceError(const std::string& text) : c10::Error(text, nullptr) {}
  [[nodiscard]] const char* what() const noexcept override { return what_without_backtrace(); }
};

}  // namespace headroom::libtorch
