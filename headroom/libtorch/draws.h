// First values of parameters that do not depend on the order in which they are made: the state of a
// device's generator and a name decide the numbers. So a part of a model has those of the whole.
//
//   Draws draws(device);
//   draws.begin("layers.3.weight");
//   weight.normal_();
//
// The default generator of the device is seeded for each name. Afterwards it goes on elsewhere, as
// if it had been used. Devices without a generator (meta) are left alone.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

namespace headroom::libtorch {

class Draws {
 public:
  explicit Draws(c10::Device device);
  ~Draws();
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;

  void begin(std::string_view name);

 private:
  at::Generator generator_;
  std::uint64_t base_ = 0;
};

}  // namespace headroom::libtorch
