#include "headroom/train/detail/oom_advice.h"

#include <fmt/format.h>

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/allocator/settings.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::train::detail {
std::string name_of(const gpu::HolderReport& holder) {
  if (!holder.process) return "an unlisted holder";
  const std::string command = without_controls(holder.command.value_or("?"));
  const std::string_view shown = beginning(command, 60);
  return fmt::format("PID {} ({}{})", holder.process->pid, shown,
                     shown.size() < command.size() ? "..." : "");
}

namespace {

constexpr std::size_t kMostPlans = 3;

// The settings to change, so that the ladder may take this plan.
std::string what_allows(const Plan& plan, const OomFacts& facts) {
  const LadderOptions& limits = facts.limits;
  const AdviceWords& words = facts.words;
  std::vector<std::string> changes;
  if (plan.micro_batch < std::min(limits.min_micro_batch, facts.failure.work.rows))
    changes.push_back(words.min_micro_batch + std::to_string(plan.micro_batch));
  for (const plan::Rung& rung : plan::rungs())
    if (plan.has(rung.name) && !limits.techniques.contains(rung.name))
      changes.push_back(words.are_keys ? rung.key
                                       : fmt::format("\"{}\" among the techniques", rung.name));
  // The last retry takes the heaviest plan.
  if (changes.empty())
    changes.push_back(words.max_retries + std::to_string(limits.max_retries + 2));
  return join(changes, ", ");
}

class Adviser {
 public:
  Adviser(const OomReport& report, const OomFacts& facts) : report_(report), facts_(facts) {}

  std::vector<OomReport::Advice> advice() && {
    about_neighbours();
    if (facts_.in_a_step && had_room()) {
      about_the_refusal();
    } else {
      about_plans();
      about_pieces();
      about_activations();
      about_others();
      about_the_model();
    }
    const Failure& failure = report_.failure;
    const Bytes missing = failure.asked.value_or(Bytes{}) - failure.free.value_or(Bytes{});
    const Bytes least = std::max(missing / 20, Bytes{1});
    std::erase_if(advice_, [&](const auto& one) { return one.bytes < least; });
    std::stable_sort(advice_.begin(), advice_.end(),
                     [](const auto& one, const auto& other) { return one.bytes > other.bytes; });
    return std::move(advice_);
  }

 private:
  void add(Bytes bytes, std::string text) { advice_.push_back({std::move(text), bytes}); }

  // Then no other plan would have helped.
  [[nodiscard]] bool had_room() const {
    const Failure& failure = report_.failure;
    return failure.asked && failure.free && report_.needed && report_.offered &&
           *failure.asked <= *failure.free && *report_.needed <= *report_.offered;
  }
  void about_the_refusal() {
    add(*report_.failure.free,
        fmt::format("run it again: the request was refused although the card had room for it, as "
                    "after a short peak of another program; {}{} allows more tries",
                    facts_.words.max_retries, facts_.limits.max_retries + 2));
  }
  void about_neighbours() {
    for (const gpu::HolderReport& holder : report_.holders) {
      const Bytes used = holder.used.value_or(Bytes{});
      if (holder.holder_class == gpu::HolderClass::running)
        add(used, fmt::format("end {}, which holds {}, or wait for its end", name_of(holder),
                              to_string(used)));
      else
        add(used, fmt::format("{} holds {}: {}", name_of(holder), to_string(used), holder.action));
    }
    if (report_.holders.empty() && report_.neighbours)
      add(*report_.neighbours,
          fmt::format(
              "end other processes: with the driver they hold {}; `headroom who` names them",
              to_string(*report_.neighbours)));
  }
  void about_plans() {
    if (!report_.needed) return;
    std::vector<std::string> said;  // with one plan for a setting the next run finds the others
    for (const auto& [plan, needed] : report_.would_fit) {
      const std::string setting = what_allows(plan, facts_);
      if (said.size() == kMostPlans || std::ranges::count(said, setting) > 0) continue;
      said.push_back(setting);
      const Bytes less = *report_.needed - needed;
      add(less, fmt::format("{} needs {}, {} less: allow it with {}", to_string(plan),
                            to_string(needed), to_string(less), setting));
    }
  }
  // See rungs/allocator.cpp.
  void about_pieces() {
    const Failure& failure = report_.failure;
    if (!failure.plan.allocator.empty() || report_.device.is_cpu()) return;
    if (!failure.asked || !failure.free || !failure.cached || *failure.asked <= *failure.free ||
        *failure.asked > *failure.free + *failure.cached)
      return;
    const auto now = allocator::effective_settings(
        [](const std::string& name) { return environment(name.c_str()); });
    if (now.settings.expandable_segments) return;
    const std::string variable = now.source.variable.value_or("PYTORCH_ALLOC_CONF") + "=";
    add(*failure.cached, fmt::format("{}{}: {} were cached in pieces, each too small",
                                     facts_.words.allocator.value_or(variable),
                                     allocator::merged_environment_value(
                                         now.source.text, "expandable_segments:True"),
                                     to_string(*failure.cached)));
  }
  // Half of the memory that the attempt held beside the model. Gradients stay as they are.
  void about_activations() {
    if (!report_.released || !facts_.in_a_step) return;
    const Bytes half = (*report_.released - gradients_to_come()) / 2;
    const Failure& failure = report_.failure;
    const std::int64_t part =
        failure.work.rows == 0 ? 0 : largest_part(failure.plan, failure.work.rows);
    if (!report_.needed && part != 1 && facts_.words.is_own_loop)
      add(half, fmt::format(
                    "{}, and gradients accumulated over twice as many: about {} less, half of the "
                    "activations",
                    part == 0 ? "half the micro-batch" : "micro-batch " + std::to_string(part / 2),
                    to_string(half)));
    if (!facts_.has_autocast)
      add(half, fmt::format("{}: up to {} less, half of the activations", facts_.words.autocast,
                            to_string(half)));
  }
  void about_others() {
    if (facts_.module == nullptr || !facts_.words.is_own_loop) return;
    const Bytes others = sum_of(OomReport::Kind::other);
    if (others <= sum_of(OomReport::Kind::buffers)) return;  // a step's copies of the buffers
    add(others,
        fmt::format("drop tensors that are not the model's: {} are not parameters, gradients, "
                    "states or buffers (results of earlier steps, batches, workspaces)",
                    to_string(others)));
  }
  void about_the_model() {
    if (!report_.offered) return;
    if (report_.least) {
      const Bytes over = report_.least->needed - *report_.offered;
      add(over, fmt::format("a smaller model, or a larger card: {} needs the least, {}, which is "
                            "{} more than this card has for it",
                            to_string(report_.least->plan), to_string(report_.least->needed),
                            to_string(over)));
      return;
    }
    Bytes rest = gradients_to_come();
    for (const OomReport::Kind kind : {OomReport::Kind::parameters, OomReport::Kind::gradients,
                                       OomReport::Kind::optimizer_states, OomReport::Kind::buffers})
      rest += sum_of(kind);
    add(rest - *report_.offered,
        fmt::format("a smaller model, or an optimizer with fewer states: they and the gradients "
                    "need {}, which is {} more than this card has for it",
                    to_string(rest), to_string(rest - *report_.offered)));
  }
  [[nodiscard]] Bytes sum_of(OomReport::Kind kind) const {
    return report_.sums[static_cast<std::size_t>(kind)];
  }
  // The gradients that trained parameters do not have yet.
  [[nodiscard]] Bytes gradients_to_come() const {
    Bytes bytes;
    if (facts_.module != nullptr)
      for (const at::Tensor& parameter : facts_.module->parameters())
        if (parameter.requires_grad() && parameter.has_storage() &&
            parameter.device() == report_.device && !parameter.grad().defined())
          bytes += Bytes{static_cast<std::int64_t>(parameter.nbytes())};
    return bytes;
  }

  const OomReport& report_;
  const OomFacts& facts_;
  std::vector<OomReport::Advice> advice_;
};

}  // namespace

std::vector<OomReport::Advice> advice_on(const OomReport& report, const OomFacts& facts) {
  return Adviser(report, facts).advice();
}

}  // namespace headroom::train::detail
