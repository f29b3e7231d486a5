#include "headroom/train/oom_report.h"

#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/live.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/tensor.h"
#include "headroom/train/detail/oom_advice.h"
#include "headroom/train/rungs/rungs.h"
#include "headroom/train/step.h"

namespace headroom::train {
namespace {

using Live = OomReport::Live;
using ByAddress = std::map<std::uint64_t, Live>;

constexpr std::size_t kMostLive = 10;

// Nothing for a device whose memory is not counted, as the CPU's mostly is.
template <typename Ask>
auto if_counted(const Ask& ask) -> std::optional<decltype(ask())> {
  try {
    return ask();
  } catch (const UsageError&) {
    return {};
  }
}

// ---- Live tensors ----

void add_tensor(ByAddress& named, c10::Device device, const at::Tensor& tensor,
                OomReport::Kind kind, const std::string& name) {
  if (!tensor.defined() || tensor.device() != device || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  const auto address = sim::address_of(storage).value_or(
      reinterpret_cast<std::uintptr_t>(device.is_privateuseone() ? nullptr : storage.data()));
  if (address != 0)
    named.try_emplace(address,
                      Live{kind, name, Bytes{static_cast<std::int64_t>(storage.nbytes())}});
}

ByAddress named_tensors(const OomFacts& facts, c10::Device device) {
  ByAddress named;
  std::map<const void*, std::string> names;  // of parameters
  const auto add = [&](const at::Tensor& tensor, OomReport::Kind kind, const std::string& name) {
    add_tensor(named, device, tensor, kind, name);
  };
  if (facts.module != nullptr) {
    for (const auto& parameter : facts.module->named_parameters()) {
      names.emplace(parameter->unsafeGetTensorImpl(), parameter.key());
      for (const at::Tensor& part : libtorch::memory_of(*parameter))
        add(part, OomReport::Kind::parameters, parameter.key());
      add(parameter->grad(), OomReport::Kind::gradients, "gradient of " + parameter.key());
    }
    for (const auto& buffer : facts.module->named_buffers())
      add(*buffer, OomReport::Kind::buffers, buffer.key());
  }
  for (std::size_t i = 0; facts.optimizer != nullptr && i < facts.optimizer->parameters().size();
       ++i) {
    const auto found = names.find(facts.optimizer->parameters()[i].unsafeGetTensorImpl());
    const std::string name =
        found == names.end() ? "parameter " + std::to_string(i) : found->second;
    for (const auto& [state, tensor] : facts.optimizer->state(i))
      add(tensor, OomReport::Kind::optimizer_states, state + " of " + name);
  }
  for (const at::Tensor& state : facts.states)
    add(state, OomReport::Kind::optimizer_states, "a state");
  return named;
}

std::vector<Live> live_memory(const OomFacts& facts, c10::Device device) {
  ByAddress named = named_tensors(facts, device);
  std::vector<Live> all;
  std::map<std::string, Live> others;
  const auto blocks = if_counted([&] { return memory::live_allocations(device); });
  if (!blocks)
    for (auto& [address, one] : named) all.push_back(std::move(one));
  for (const auto& block : blocks.value_or(std::vector<memory::LiveAllocation>{})) {
    if (const auto found = named.find(block.address); found != named.end()) {
      found->second.bytes = block.bytes;
      all.push_back(found->second);
      continue;
    }
    const std::string where = block.module +
                              (block.module.empty() || block.operation.empty() ? "" : ", ") +
                              block.operation;
    Live& other = others.try_emplace(where, Live{.name = where, .count = 0}).first->second;
    other.bytes += block.bytes;
    ++other.count;
  }
  for (auto& [where, other] : others) all.push_back(std::move(other));
  std::stable_sort(all.begin(), all.end(),
                   [](const Live& one, const Live& other) { return one.bytes > other.bytes; });
  return all;
}

// ---- Who holds the card ----

void add_holders(OomReport& report, const std::vector<gpu::HolderReport>& holders,
                 const std::optional<memory::GpuMemoryStats>& now) {
  Bytes mine = now ? now->reserved : Bytes{};  // with the CUDA context, if the driver reports it
  for (const gpu::HolderReport& holder : holders) {
    if (holder.process && holder.process->pid == ::getpid())
      mine = std::max(mine, holder.used.value_or(Bytes{}));
    else
      report.holders.push_back(holder);
  }
  std::stable_sort(report.holders.begin(), report.holders.end(),
                   [](const auto& one, const auto& other) { return one.used > other.used; });
  if (!now || !now->free || !now->total) return;
  report.total = now->total;
  report.offered = now->obtainable();
  report.limit = now->limit;
  report.neighbours = *now->total - *now->free - mine;
  if (!report.failure.free) return;
  report.ours = std::max(Bytes{}, *now->total - *report.failure.free - *report.neighbours);
  const Bytes context = mine - now->reserved;
  const Bytes released =
      *report.ours - context - report.failure.cached.value_or(Bytes{}) - now->allocated;
  if (released.mib() >= 1) report.released = released;
}

// ---- Plans that would have fitted ----

// Every set of rungs, those of fewer before those of more.
std::vector<std::set<std::string>> sets_of_rungs() {
  std::vector<std::set<std::string>> all{{}};
  for (const plan::Rung& rung : plan::rungs())
    for (std::size_t i = 0, before = all.size(); i < before; ++i) {
      all.push_back(all[i]);
      all.back().insert(rung.name);
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.size() < other.size(); });
  return all;
}

// The plans that fit, each with the largest micro-batch that does.
std::vector<PricedPlan> fitting_plans(const Failure& failure, const LadderOptions& limits,
                                      const Prices& prices, bool leaves_room) {
  std::vector<PricedPlan> all;
  const auto card = rungs::card_for_less({failure, limits, &prices, true, leaves_room});
  if (!card) return all;
  for (const std::set<std::string>& techniques : sets_of_rungs()) {
    Plan plan = failure.plan;
    plan.techniques = techniques;
    const auto fitting =
        rungs::largest_fitting(plan, failure.work.rows, failure.work, *card, limits, prices);
    if (fitting)
      all.push_back({*fitting, prices.needed(*fitting, failure.work)->of(failure.stage)});
  }
  return all;
}

void add_prices(OomReport& report, const OomFacts& facts) {
  const Prices* const prices = facts.prices;
  const Work& work = facts.failure.work;
  if (prices == nullptr || work.rows == 0) return;
  if (const auto needed = prices->needed(facts.failure.plan, work))
    report.needed = needed->of(facts.failure.stage);
  Failure now = report.failure;
  if (report.offered && now.card)
    now.card = now.card->limited(now.stage, *report.offered);
  else if (report.offered)
    now.card = *report.offered;
  LadderOptions any = facts.limits;
  any.min_micro_batch = 1;
  any.fewest_rows = prices->fewest_rows();
  any.host_memory = {};
  report.would_fit = fitting_plans(now, any, *prices, /*leaves_room=*/true);
  if (report.would_fit.empty()) report.would_fit = fitting_plans(now, any, *prices, false);
  any.techniques = plan::rung_names();
  Plan plain = facts.failure.plan;
  plain.techniques.clear();
  report.least = Ladder(any, prices).least(plain, work);
}

}  // namespace

OomFacts facts_of(Step& step, const Failure& failure, const StepOptions& options) {
  return {.device = step.devices().at(failure.rank),
          .failure = failure,
          .module = &step.module(failure.rank),
          .optimizer = &step.optimizer(failure.rank),
          .prices = step.prices(),
          .limits = options.ladder,
          .has_autocast = options.autocast.has_value()};
}

Failure failure_from(const oom::Judgement& judgement, c10::Device device) {
  Failure failure{.plan = {},
                  .work = {},
                  .asked = judgement.asked,
                  .free = judgement.free,
                  .cached = judgement.cached,
                  .card = {}};
  const auto now = if_counted([&] { return memory::get_gpu_memory_stats(device); });
  if (now) failure.card = now->obtainable();
  return failure;
}

OomReport oom_report(const OomFacts& facts) {
  OomReport report{.device = memory::concrete(facts.device), .failure = facts.failure};
  report.largest = live_memory(facts, report.device);
  for (const Live& one : report.largest)
    report.sums[static_cast<std::size_t>(one.kind)] += one.bytes;
  report.largest.resize(std::min(report.largest.size(), kMostLive));
  add_holders(report, facts.holders,
              if_counted([&] { return memory::get_gpu_memory_stats(report.device); }));
  add_prices(report, facts);
  report.advice = detail::advice_on(report, facts);
  return report;
}

}  // namespace headroom::train
