// The surroundings that decide what a part of a model computes: random numbers and autocast. Kept
// when it runs first, put back around the time it runs again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "headroom/libtorch/autocast.h"

namespace headroom::nn::detail {

class Surroundings {
 public:
  // As they are now, for the CPU and this device.
  explicit Surroundings(c10::Device device);

  // Puts them back; afterwards the random numbers go on as if nothing had been drawn.
  class Replay {
   public:
    explicit Replay(const Surroundings& then);
    ~Replay();
    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

   private:
    std::vector<std::pair<at::Generator, at::Tensor>> before_;
    std::optional<libtorch::AutocastScope> on_device_, on_cpu_;
  };

 private:
  struct Autocast {
    c10::DeviceType device;
    c10::ScalarType type;
    bool enabled;
  };
  static Autocast autocast_now(c10::DeviceType device);

  std::vector<std::pair<at::Generator, at::Tensor>> random_;
  Autocast device_, cpu_;
};

}  // namespace headroom::nn::detail
