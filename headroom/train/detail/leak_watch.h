// Notices memory that grows from step to step, and names its holders.
//
// A step begins and ends with the same tensors, so the live bytes after two steps with the same
// plan are equal. If the least of them rises over three windows of steps, one after another, the
// next window's allocations are recorded; those that outlive it are the growth.
//
// Threads: that of the steps.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/memory/history.h"
#include "headroom/trace/recorder.h"
#include "headroom/train/plan.h"

namespace headroom::train::detail {

class LeakWatch {
 public:
  // After each commit. Returns a sentence when memory is found to grow.
  [[nodiscard]] std::optional<std::string> after(c10::Device device, const Plan& plan,
                                                 std::int64_t step, Bytes allocated);

 private:
  void begin(c10::Device device, const Plan& plan);
  [[nodiscard]] std::string sentence(std::int64_t step, Bytes allocated) const;

  std::optional<c10::Device> device_;
  Plan plan_;
  std::int64_t in_window_ = 0, rises_ = 0;
  std::int64_t first_step_ = 0;
  Bytes least_, before_, first_;  // of this window, of the one before, when it began to rise
  bool is_told_ = false;
  std::unique_ptr<trace::Recorder> recorder_;
  std::unique_ptr<memory::History> history_;
};

}  // namespace headroom::train::detail
