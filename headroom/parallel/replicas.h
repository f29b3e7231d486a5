// Copies of a model, one on each device, with equal values: what data parallel training works with.
//
//   parallel::Replicas<Net> net({box.device(0), box.device(1)}, [] { return Net(); });
//   net->forward(x);                 // replica 0, as if it were the only one
//   for (Net& one : net) one->train();
//
// From a module that is there, whose class has a clone() (libtorch/modules.h):
//
//   auto net = parallel::replicas_of(model, devices);    // replica 0 is the model itself
//
// `Net` is a std::shared_ptr of a module, or a holder that TORCH_MODULE defines.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"

namespace headroom::parallel {

namespace detail {
// Copies all parameters and buffers by their names. Throws UsageError if they are not the same.
void copy_values(const torch::nn::Module& from, torch::nn::Module& to);
void check_devices(const std::vector<c10::Device>& devices);
}  // namespace detail

template <typename Net>
class Replicas {
 public:
  // Makes each replica directly on its device, one after another, and then gives all the values of
  // the first. Throws UsageError for a device that is named twice.
  template <typename Make>
  Replicas(const std::vector<c10::Device>& devices, const Make& make) {
    detail::check_devices(devices);
    for (const c10::Device device : devices) {
      all_.push_back(libtorch::on(device, make));
      if (all_.size() > 1) detail::copy_values(*all_.front(), *all_.back());
    }
  }
  explicit Replicas(std::vector<Net> all) : all_(std::move(all)) {}

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] Net& operator[](std::size_t i) { return all_.at(i); }
  auto operator->() { return all_.front().operator->(); }
  auto& operator*() { return *all_.front(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  std::vector<Net> all_;
};

template <typename Module>
[[nodiscard]] Replicas<std::shared_ptr<Module>> replicas_of(
    const std::shared_ptr<Module>& module, const std::vector<c10::Device>& devices) {
  detail::check_devices(devices);
  std::vector<std::shared_ptr<Module>> all{module};
  libtorch::move(*module, devices.front());
  for (std::size_t i = 1; i < devices.size(); ++i)
    all.push_back(libtorch::clone(*module, devices[i]));
  return Replicas<std::shared_ptr<Module>>(std::move(all));
}

}  // namespace headroom::parallel
