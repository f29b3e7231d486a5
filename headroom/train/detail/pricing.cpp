#include "headroom/train/detail/pricing.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>

#include "headroom/allocator/settings.h"
#include "headroom/base/file.h"
#include "headroom/dryrun/step_run.h"
#include "headroom/sim/child.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/detail/stage_requests.h"
#include "headroom/train/rungs/rungs.h"

namespace headroom::train::detail {
namespace {

// ---- Across the pipe ----

template <typename Value>
void put(std::string& bytes, const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(Value));
}
template <typename Value>
Value take(std::string_view& bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof(Value));
  bytes.remove_prefix(sizeof(Value));
  return value;
}

void put(std::string& bytes, const PricedRun& run) {
  put(bytes, run.plan.micro_batch);
  put(bytes, run.plan.techniques.size());
  for (const std::string& technique : run.plan.techniques) {
    put(bytes, technique.size());
    bytes += technique;
  }
  put(bytes, run.rows);
  put(bytes, run.stage);
  put(bytes, run.requests.size());
  for (const allocator::Operation& request : run.requests) put(bytes, request);
}
PricedRun take_run(std::string_view& bytes) {
  PricedRun run;
  run.plan.micro_batch = take<std::int64_t>(bytes);
  for (auto count = take<std::size_t>(bytes); count > 0; --count) {
    const auto size = take<std::size_t>(bytes);
    run.plan.techniques.emplace(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  run.rows = take<std::int64_t>(bytes);
  run.stage = take<std::size_t>(bytes);
  run.requests.resize(take<std::size_t>(bytes));
  for (allocator::Operation& request : run.requests) request = take<allocator::Operation>(bytes);
  return run;
}

// ---- In the child ----

// The parent's devices cannot be read here. Tensors on the host keep their values.
Tensors without_devices(const Tensors& batch) {
  Tensors host;
  for (const at::Tensor& one : batch)
    host.push_back(!one.defined() || one.device().is_cpu()
                       ? one
                       : at::zeros(one.sizes(), at::TensorOptions(at::kCPU).dtype(one.dtype())));
  return host;
}

struct DryRuns {
  const Transactions& ranks;
  const Tensors batch;
  const std::vector<gpu::SimulatedCard> cards;  // by stage
  const dryrun::CardOptions options;
  std::string answer = {};
  std::int64_t fewest_rows = 1;

  // A stage alone on a card, with what the stage before has given.
  [[nodiscard]] dryrun::Requests run(std::size_t stage,
                                     const std::optional<std::vector<Tensors>>& given,
                                     const Plan& plan, std::int64_t rows) const {
    return requests_alone(ranks[stage], cards[stage], some_rows(batch, {0, rows}), plan, given,
                          options);
  }
  // The stages of a replica, one after another, because each gives the next one its tensors.
  template <typename Use>
  void each_stage(const Plan& plan, std::int64_t rows, const Use& use) const {
    std::optional<std::vector<Tensors>> given;
    for (std::size_t stage = 0; stage < cards.size(); ++stage) {
      use(stage, run(stage, given, plan, rows));
      if (stage + 1 < cards.size()) given = ranks[stage].given();
    }
  }
  void add(const Plan& plan, std::int64_t rows) {
    each_stage(plan, rows, [&](std::size_t stage, dryrun::Requests requests) {
      put(answer, PricedRun{plan, rows, with_another_step(std::move(requests)), stage});
    });
  }

  [[nodiscard]] bool runs(const Plan& plan, std::int64_t rows) const {
    try {
      each_stage(plan, rows, [](std::size_t, const dryrun::Requests&) {});
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  // Batch norm over single values refuses a single row, for example.
  void find_fewest_rows(const Plan& plan, std::int64_t rows) {
    while (fewest_rows < rows && !runs(plan, fewest_rows))
      fewest_rows = std::min(2 * fewest_rows, rows);
  }

  // Of the parts, and of the batch.
  struct Size {
    std::int64_t part, rows;
    auto operator<=>(const Size&) const = default;
  };

  // The whole batch at once, and two smaller micro-batches, in two parts each: the second part runs
  // beside the gradients of the first, and further parts repeat it. A pipeline is full with as many
  // parts as it has stages; then two more, at three sizes. The wish is priced in any case.
  [[nodiscard]] std::set<Size> sizes_of(const Plan& plan, std::int64_t rows) const {
    const std::int64_t stages = ranks.layout().stages, wish = largest_part(plan, rows);
    std::set<Size> all;
    if (stages == 1) {
      all = {{rows, rows}};
      for (const std::int64_t part : {(rows + 1) / 2, (rows + 3) / 4})
        if (part < rows) all.insert({part, std::min(2 * part, rows)});
      return all;
    }
    all = {{rows, rows}, {wish, rows}};
    const bool fills = ranks.pipeline() == plan::Pipeline::one_by_one;
    const std::int64_t most = rows / (stages + 1);
    if (fills)
      for (const std::int64_t part : {most, most / 2, most / 4})
        if (part > 0) all.insert({part, std::min((stages + 2) * part, rows)});
    if (!fills || most == 0)
      for (std::int64_t part = rows; part > 1;) all.insert({part = (part + 1) / 2, rows});
    return all;
  }

  void add_form(Plan plan, std::int64_t rows) {
    // The first run with what lasts changes the model. A step's own need is that of the next ones.
    if (adds_what_lasts(plan, {})) static_cast<void>(runs(plan, std::min(fewest_rows, rows)));
    for (const auto& [part, of] : sizes_of(plan, rows)) {
      plan.micro_batch = part;
      if (part == rows || smallest_part(plan, of) >= fewest_rows) add(plan, of);
    }
  }
};

// Those that the device's allocator has now; of a real card, those that it began with.
allocator::Settings settings_of(c10::Device device) {
  if (device.is_privateuseone()) return sim::card_of(device)->fork().settings();
  return allocator::effective_settings(
             [](const std::string& name) { return environment(name.c_str()); })
      .settings;
}

}  // namespace

Prices priced(const Transactions& ranks, const Tensors& batch, const Plan& plan,
              const LadderOptions& options) {
  const allocator::Settings settings = settings_of(ranks.first().device());
  const std::int64_t rows = rows_in(batch);
  std::vector<gpu::SimulatedCard> cards;
  for (std::size_t stage = 0; stage < static_cast<std::size_t>(ranks.layout().stages); ++stage)
    cards.push_back(dryrun::without_limit(dryrun::card_like(ranks[stage].device())));
  const std::string answer = sim::in_child([&] {
    DryRuns runs{ranks, without_devices(batch), cards, {.settings = settings}};
    runs.find_fewest_rows(plan, rows);
    runs.add_form(plan, rows);
    for (const Plan& form : rungs::forms_of(plan, options)) {
      if (form == plan) continue;
      const std::size_t before = runs.answer.size();
      try {
        runs.add_form(form, rows);
      } catch (const std::exception&) {
        runs.answer.resize(before);
      }
    }
    put(runs.answer, runs.fewest_rows);
    return runs.answer;
  });
  Prices prices(settings, ranks.layout().stages, ranks.pipeline());
  std::string_view rest = answer;
  while (rest.size() > sizeof(std::int64_t)) prices.learn(take_run(rest));
  prices.set_fewest_rows(take<std::int64_t>(rest));
  return prices;
}

}  // namespace headroom::train::detail
