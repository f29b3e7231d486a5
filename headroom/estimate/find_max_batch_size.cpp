#include "headroom/estimate/find_max_batch_size.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/estimate/detail/kept_state.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"
#include "headroom/sim/child.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate::detail {
namespace {

using Size = std::int64_t;
using torch::nn::Module;
using torch::optim::Optimizer;

// ---- By dry run, of a copy on a card made for it ----

MaxBatch by_copy(const UserModule& user_module, const gpu::SimulatedCard& card,
                 const Bounds& bounds, const MaxBatchOptions& options) {
  const Largest found = find_largest(
      bounds, [&](Size rows) { return copy_on(user_module, options.optimizer, rows); }, card,
      options.margin, options.steps);
  return {.size = found.size,
          .recommended = found.recommended,
          .capped = found.capped,
          .dry_probes = found.probes,
          .real_probes = {}};
}

// ---- On the device itself ----

// Runs the model where it is, and records the results. On a simulated card the runs may be dry.
class Trials {
 public:
  Trials(const UserModule& user_module, c10::Device device, const MaxBatchOptions& options)
      : user_module_(user_module), device_(device), options_(options) {}

  [[nodiscard]] bool fits(Size rows) { return probe(rows).fits; }
  // True if the batch fits and leaves that much of the device free.
  [[nodiscard]] bool leaves(Bytes free, Size rows) {
    const Probe& one = probe(rows);
    return one.fits && one.peak_reserved + free <= room();
  }
  [[nodiscard]] bool leaves_share(double share, Size rows) {
    return leaves(Bytes{std::llround(share * static_cast<double>(room().count))}, rows);
  }
  [[nodiscard]] const std::vector<Probe>& probes() const { return probes_; }

 private:
  const Probe& probe(Size rows) {
    const auto known = std::find_if(probes_.begin(), probes_.end(),
                                    [&](const Probe& one) { return one.size == rows; });
    return known != probes_.end() ? *known : probes_.emplace_back(run(rows));
  }

  Probe run(Size rows) {
    memory::clear_gpu_memory();
    const memory::GpuMemoryScope scope(device_);
    Probe probe{.size = rows, .fits = true, .peak_reserved = {}};
    try {
      train(rows);
    } catch (...) {
      if (!libtorch::is_out_of_memory(std::current_exception())) throw;
      probe.fits = false;
    }
    probe.peak_reserved = scope.use().peak_reserved;
    forget_step(*user_module_.model, options_.optimizer);
    memory::clear_gpu_memory(/*force=*/true);
    return probe;
  }

  void train(Size rows) {
    user_module_.model->train();
    const std::unique_ptr<Optimizer> made =
        options_.optimizer != nullptr ? nullptr : like(nullptr, user_module_.model->parameters());
    Optimizer& optimizer = made != nullptr ? *made : *options_.optimizer;
    const LossOfBatch loss_of = user_module_.batch_of(rows, device_);
    for (int i = 0; i < options_.steps; ++i) step(*user_module_.model, optimizer, loss_of);
  }

  [[nodiscard]] Bytes room() const {
    const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(device_);
    return now.obtainable().value_or(now.reserved);
  }

  const UserModule& user_module_;
  const c10::Device device_;
  const MaxBatchOptions options_;
  std::vector<Probe> probes_;
};

// The largest size for which `is_good` holds while it fails for the next size, or the last size of
// the bounds. Searches from `start` in growing steps, then by halving. std::nullopt if the smallest
// size already fails.
std::optional<Size> boundary(const Bounds& bounds, Size start,
                             const std::function<bool(Size)>& is_good) {
  const Size least = bounds.at_least, most = *bounds.at_most;
  Size low = std::clamp(start, least, most), high = low;
  if (is_good(low)) {
    for (Size leap = 1; low < most; leap *= 2) {
      high = std::min(low + leap, most);
      if (!is_good(high)) break;
      low = high;
    }
    if (low == most) return low;
  } else {
    for (Size leap = 1;; leap *= 2) {
      if (high == least) return {};
      low = std::max(high - leap, least);
      if (is_good(low)) break;
      high = low;
    }
  }
  while (high - low > 1) {
    const Size middle = low + (high - low) / 2;
    (is_good(middle) ? low : high) = middle;
  }
  return low;
}

// `said` is the result of a dry run: the searches start there.
MaxBatch by_trials(const UserModule& user_module, c10::Device device, const Bounds& bounds,
                   const MaxBatch& said, const MaxBatchOptions& options) {
  Trials trials(user_module, device, options);
  MaxBatch found;
  found.size = boundary(bounds, said.size.value_or(bounds.at_least),
                        [&](Size rows) { return trials.fits(rows); });
  found.capped = found.size == bounds.at_most;
  if (found.size && options.margin.bytes) {
    Bounds below = bounds;
    below.at_most = found.size;
    const Size start = said.recommended.value_or(bounds.at_least);
    found.recommended = boundary(
        below, start, [&](Size rows) { return trials.leaves(*options.margin.bytes, rows); });
  } else if (found.size) {
    const bool leaves = found.capped && trials.leaves_share(options.margin.share, *found.size);
    found.recommended = leaves ? found.size : less_share(*found.size, options.margin.share);
  }
  found.real_probes = trials.probes();
  return found;
}

// Runs the steps of a simulated card shape-only, without computing.
class DryScope {
 public:
  explicit DryScope(sim::Card& card) : card_(card), before_(card.set_mode(sim::Mode::shape_only)) {}
  ~DryScope() { card_.set_mode(before_); }
  DryScope(const DryScope&) = delete;
  DryScope& operator=(const DryScope&) = delete;

 private:
  sim::Card& card_;
  const sim::Mode before_;
};

MaxBatch dry_on_its_card(const UserModule& user_module, c10::Device device, const Bounds& bounds,
                         const MaxBatchOptions& options) {
  const DryScope dry(*sim::card_of(device));
  MaxBatch found = by_trials(user_module, device, bounds, {}, options);
  found.dry_probes = std::move(found.real_probes);
  found.real_probes.clear();
  return found;
}

Json to_json(const MaxBatch& found) {
  Json probes = Json::array();
  for (const Probe& probe : found.dry_probes)
    probes.push_back({probe.size, probe.fits, probe.peak_reserved.count});
  return {{"size", found.size ? Json(*found.size) : Json()},
          {"recommended", found.recommended ? Json(*found.recommended) : Json()},
          {"capped", found.capped},
          {"probes", std::move(probes)}};
}

MaxBatch from_json(const Json& json) {
  MaxBatch found;
  if (!json.at("size").is_null()) found.size = json.at("size").get<Size>();
  if (!json.at("recommended").is_null()) found.recommended = json.at("recommended").get<Size>();
  found.capped = json.at("capped").get<bool>();
  for (const Json& probe : json.at("probes"))
    found.dry_probes.push_back({.size = probe.at(0).get<Size>(),
                                .fits = probe.at(1).get<bool>(),
                                .peak_reserved = bytes_from(probe.at(2))});
  return found;
}

// A child process cannot use its parent's GPU, so the dry run there gets a copy without data.
MaxBatch dry_in_child(const UserModule& user_module, const gpu::SimulatedCard& card,
                      const Bounds& bounds, const MaxBatchOptions& options) {
  const std::shared_ptr<Module> shapes = shapes_of(user_module);
  const UserModule of_copy{
      .model = shapes.get(), .another = user_module.another, .batch_of = user_module.batch_of};
  return from_json(parse_json(
      sim::in_child([&] { return to_line(to_json(by_copy(of_copy, card, bounds, options))); }),
      "the answer of a child process"));
}

MaxBatch by_dry_run(const UserModule& user_module, c10::Device device, const Bounds& bounds,
                    const MaxBatchOptions& options) {
  if (device.type() == at::kPrivateUse1)
    return dry_on_its_card(user_module, device, bounds, options);
  const gpu::SimulatedCard card = dryrun::card_like(device);
  if (!sim::needs_child()) return by_copy(user_module, card, bounds, options);
  try {
    return dry_in_child(user_module, card, bounds, options);
  } catch (const UnavailableError&) {
    if (!options.really) throw;
    return {};
  }
}

void check(const UserModule& user_module, c10::Device device) {
  for (const auto& item : user_module.model->named_parameters())
    if (item.value().device() != device)
      throw UsageError(expectation("find_max_batch_size", "a model on " + device.str(),
                                   item.key() + " on " + item.value().device().str(),
                                   "libtorch::move(model, device)"));
  if (device.is_cpu())
    throw UsageError(expectation("find_max_batch_size", "a device whose memory is counted", "cpu",
                                 "a card's name, dryrun::card_for(\"RTX 4090\")"));
}

}  // namespace

MaxBatch find_max_batch_size(const UserModule& user_module, c10::Device where, Size min, Size max,
                             const MaxBatchOptions& options) {
  const c10::Device device = memory::concrete(where);
  check(user_module, device);
  const Bounds bounds{.at_least = min, .at_most = max};
  estimate::check(bounds, options.margin, "find_max_batch_size");
  KeptState kept(*user_module.model, options.optimizer, device);
  MaxBatch found = by_dry_run(user_module, device, bounds, options);
  if (options.really) {
    std::vector<Probe> dry_probes = std::move(found.dry_probes);
    found = by_trials(user_module, device, bounds, found, options);
    found.dry_probes = std::move(dry_probes);
  }
  kept.restore();
  return found;
}

MaxBatch find_max_batch_size(const UserModule& user_module, const gpu::SimulatedCard& card,
                             Size min, Size max, const MaxBatchOptions& options) {
  if (options.really)
    throw UsageError(expectation("find_max_batch_size", "a device to run on",
                                 "the card " + card.name + ", which is only described",
                                 "the device of the model"));
  sim::check_alone("find_max_batch_size");
  const Bounds bounds{.at_least = min, .at_most = max};
  estimate::check(bounds, options.margin, "find_max_batch_size");
  if (!sim::needs_child()) return by_copy(user_module, card, bounds, options);
  return dry_in_child(user_module, card, bounds, options);
}

}  // namespace headroom::estimate::detail
