#include "headroom/forecast/step_time.h"

#include <algorithm>

#include "headroom/forecast/by_layer.h"
#include "headroom/gpu/links.h"
#include "headroom/gpu/profile.h"

namespace headroom::forecast {
namespace {

constexpr double kReached = 0.6;  // of a rate, where the chip is not measured
// The share of a data sheet's bandwidth that kernels over large tensors reach.
constexpr double kReachedBandwidth = 0.8;
// The least time of a kernel in a row of small ones: "Getting Started with CUDA Graphs", NVIDIA's
// developer blog, September 2019.
constexpr double kKernelSeconds = 3.8e-6;
// Host memory, where offloaded optimizer states are updated; disk.
constexpr double kHostBytesPerSecond = 50e9, kDiskBytesPerSecond = 3e9;

double bandwidth(const gpu::CatalogueCard& card) {
  const gpu::DeviceProfile* profile = gpu::find_profile(card.profile);
  const double reached = profile != nullptr
                             ? profile->bandwidth_fraction.value_or(kReachedBandwidth)
                             : kReachedBandwidth;
  return card.bandwidth_gb_s * 1e9 * reached;
}

// A chip without units for a number type computes it at the rate of float32.
double tera_operations(const gpu::Rates& rates, Arithmetic arithmetic) {
  const double floats = rates.fp32.value_or(10);
  switch (arithmetic) {
    case Arithmetic::float32:
      break;
    case Arithmetic::tf32:
      return rates.tf32.value_or(floats);
    case Arithmetic::bfloat16:
      return rates.bf16.value_or(floats);
    case Arithmetic::float16:
      return rates.fp16.value_or(floats);
  }
  return floats;
}

double operations_per_second(const gpu::CatalogueCard& card, Arithmetic arithmetic) {
  const gpu::DeviceProfile* profile = gpu::find_profile(card.profile);
  const double reached =
      profile != nullptr ? profile->matmul_fraction.value_or(kReached) : kReached;
  return tera_operations(card.rates, arithmetic) * 1e12 * reached;
}

double pass_seconds(const Effort& effort, const gpu::CatalogueCard& card) {
  double seconds =
      std::max(effort.moved() / bandwidth(card), effort.other_kernels() * kKernelSeconds);
  for (std::size_t i = 0; i < Effort::kArithmetics; ++i) {
    const double rate = operations_per_second(card, static_cast<Arithmetic>(i));
    for (const Effort::Products& products : effort.products()[i])
      seconds += std::max({products.operations / rate, products.bytes / bandwidth(card),
                           products.kernels * kKernelSeconds});
  }
  return seconds;
}

double bytes_each(model::Dtype dtype) {
  return dtype == model::Dtype::float32 ? 4 : 2;
}

// Reads gradients; reads and writes weights and states.
double optimizer_seconds(const Forecast& forecast, const gpu::CatalogueCard& card) {
  const model::Settings& settings = forecast.settings;
  if (settings.mode != model::Mode::train || settings.optimizer == model::Optimizer::none) return 0;
  const double trained = static_cast<double>(forecast.trainable_parameters) *
                         bytes_each(settings.dtype) / (settings.zero >= 1 ? settings.world : 1);
  const bool keeps = settings.optimizer == model::Optimizer::adam ||
                     settings.optimizer == model::Optimizer::adamw ||
                     settings.optimizer == model::Optimizer::adamw8bit ||
                     settings.optimizer == model::Optimizer::adamw4bit;
  const double states = keeps                                                  ? 2 * trained
                        : settings.optimizer == model::Optimizer::sgd_momentum ? trained
                                                                               : 0;
  // In the other forms each operation reads and writes its tensors again.
  const double passes = settings.form == model::OptimizerForm::fused ? 1 : 3;
  const double moved = passes * (3 * trained + 2 * states);
  if (!settings.offload.optimizer) return moved / bandwidth(card);
  const double place =
      settings.offload.to == model::OffloadTo::host ? kHostBytesPerSecond : kDiskBytesPerSecond;
  return moved / place + 2 * trained / (card.pcie_gb_s * 1e9);
}

// PCIe traffic of each micro-batch: parameters in both passes, gradients once, activations twice.
double offload_seconds(const Forecast& forecast, const gpu::CatalogueCard& card) {
  const model::Offload& offload = forecast.settings.offload;
  const double each = bytes_each(forecast.settings.dtype);
  double moved = 0;
  if (offload.parameters) moved += 2 * each * static_cast<double>(forecast.parameters);
  if (offload.gradients) moved += each * static_cast<double>(forecast.trainable_parameters);
  if (offload.activations) moved += 2 * static_cast<double>(forecast.offloaded_activations.count);
  const double link = offload.to == model::OffloadTo::host
                          ? card.pcie_gb_s * 1e9
                          : std::min(card.pcie_gb_s * 1e9, kDiskBytesPerSecond);
  return moved / link;
}

// A ring all-reduce sends the gradients twice. ZeRO 3 gathers the parameters in both passes and
// reduces the gradients once.
double exchange_seconds(const Forecast& forecast, const gpu::CatalogueCard& card) {
  const model::Settings& settings = forecast.settings;
  if (settings.world < 2 || settings.mode != model::Mode::train) return 0;
  const double each = bytes_each(settings.dtype);
  const double sent = settings.zero >= 3
                          ? each * (2 * static_cast<double>(forecast.parameters) +
                                    static_cast<double>(forecast.trainable_parameters))
                          : 2 * each * static_cast<double>(forecast.trainable_parameters);
  return sent / gpu::link_bytes_per_second(card, settings.world);
}

}  // namespace

const gpu::CatalogueCard& card_or_a100(const gpu::CatalogueCard* card) {
  return card != nullptr ? *card : gpu::card_named("A100 80GB");
}

double effort_seconds(const Effort& effort, const gpu::CatalogueCard* card) {
  return pass_seconds(effort, card_or_a100(card));
}

std::vector<LayerSeconds> layer_seconds(const Forecast& forecast, const gpu::CatalogueCard* card) {
  const gpu::CatalogueCard& on = card_or_a100(card);
  const double moves = offload_seconds(forecast, on), updates = optimizer_seconds(forecast, on);
  double kept = 0;
  for (const ModuleWork& module : forecast.work) kept += static_cast<double>(module.kept.count);
  return by_layer<LayerSeconds>(forecast, [&](const ModuleWork& module) {
    const double moved = kept > 0 ? moves / 2 * static_cast<double>(module.kept.count) / kept : 0;
    const double trained = forecast.trainable_parameters > 0
                               ? static_cast<double>(module.trainable_parameters) /
                                     static_cast<double>(forecast.trainable_parameters)
                               : 0;
    const double count = static_cast<double>(std::max<std::int64_t>(1, module.layers));
    return LayerSeconds{(pass_seconds(module.forward, on) + moved) / count,
                        (pass_seconds(module.backward, on) + moved) / count,
                        updates * trained / count};
  });
}

double step_seconds(const Forecast& forecast, const gpu::CatalogueCard* card) {
  const gpu::CatalogueCard& on = card_or_a100(card);
  const double pass = pass_seconds(forecast.effort, on) + offload_seconds(forecast, on);
  return pass * static_cast<double>(forecast.settings.accumulation) +
         optimizer_seconds(forecast, on) + exchange_seconds(forecast, on);
}

}  // namespace headroom::forecast
