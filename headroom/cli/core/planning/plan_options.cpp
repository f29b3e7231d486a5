#include "headroom/cli/core/planning/plan_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/planning/rule_of_thumb.h"
#include "headroom/config/train_words.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/devices.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/model/meaning.h"
#include "headroom/model/positions.h"

namespace headroom::cli {
namespace {

// As `headroom train` takes them: cards of the catalogue as simulated ones; the whole cards that
// this process may see, by number, where none are named.
std::string gpus_of(const std::string& given) {
  const gpu::Devices devices = gpu::devices_from(given);
  if (devices.kind == gpu::Devices::Kind::cpu)
    throw UsageError(expectation("--gpus", "cards to plan for", "the CPU"));
  if (devices.kind == gpu::Devices::Kind::simulated) {
    if (lower(devices.text).starts_with("sim:")) return devices.text;
    std::vector<std::string> names;
    for (const gpu::SimulatedCard& card : devices.box.cards)
      names.push_back("1x" + gpu::card_named(card.name).brief);
    std::string text = "sim:" + join(names, ",");
    std::erase(text, ' ');
    return text;
  }
  if (devices.kind == gpu::Devices::Kind::listed) return devices.text;
  std::vector<std::string> numbers;
  for (const gpu::Card& card : machine::look_at_machine(devices.text).machine.cards)
    if (!card.mig_enabled && !card.slice) numbers.push_back(std::to_string(card.index));
  return numbers.empty() ? "all" : join(numbers, ",");
}

}  // namespace

void PlanOptions::add_to(CLI::App* command) {
  add_gpus_option(command, gpus);
  command
      ->add_option("--tune", tune,
                   "What may be trained: full (all weights), lora (adapters), any (all weights "
                   "if they fit, else the lightest change)")
      ->capture_default_str();
  command
      ->add_option("--budget", budget,
                   "Most memory of a card for weights, gradients and optimizer states: 0.7, "
                   "70%, 20GiB")
      ->capture_default_str();
  command->add_option(
      "--host-memory", host_memory,
      "Most host memory for activations that wait there (default: what this machine "
      "has free)");
  command->add_option("--disk", disk,
                      "Most disk space for tensors; no way to train of today takes any");
  command->add_option("--micro-batch", micro_batch, "Rows of a forward pass")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--replicas", replicas, "Copies of the model")
      ->check(CLI::Range(1, gpu::kMostCards));
  command->add_option("--stages", stages, "Cards that share one copy")
      ->check(CLI::Range(1, gpu::kMostCards));
  command->add_flag("--balance", balance,
                    "The fullest card has at most 15 % more of the model than the mean");
  command->add_option("--rates", rates,
                      "The card whose times and links all have (default: their own, or the "
                      "catalogue's nearest in memory)");
  command->add_option("--allocator", allocator,
                      "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF");
  std::vector<std::string> known = config::options_with_keys();
  known.emplace_back("--policy");
  settings.add_to(
      command, known,
      {{"--batch", "Rows of a whole step (default 32)"},
       {"--policy",
        "Rule of thumb that decides a part of the plan: size-table and simple the micro-batch, "
        "strategy how cards share the model, variant the model (A@40GiB,B). The answer says what "
        "it loses (default: exact, none)"}});
}

PlanQuestion PlanOptions::question(const std::string& model, const Usual& usual) const {
  std::vector<std::string> given = settings.given();
  std::erase(given, "--policy");
  const auto has = [&](const char* name) {
    return std::find(given.begin(), given.end(), name) != given.end();
  };
  model::Settings chosen = settings.settings();
  const bool is_one = chosen.policy != model::Policy::variant;
  const auto longest =
      is_one ? model::longest_sequence(model::model_named(model).config) : usual.seq;
  if (usual.seq && longest && !has("--seq")) {
    chosen.seq = std::min(*usual.seq, *longest);
    given.emplace_back("--seq");
  }
  if (usual.bfloat16 && !has("--dtype") && !has("--autocast")) {
    chosen.dtype = model::Dtype::bfloat16;
    given.emplace_back("--dtype");
  }
  if (chosen.policy != model::Policy::variant)
    check_meaning(model::model_named(model).config, chosen, given);
  PlanQuestion question{.model = model,
                        .keys = config::train_words(chosen, given),
                        .gpus = gpus_of(gpus),
                        .budget = parse_share_or_amount(budget, "--budget"),
                        .tune = tune_named(tune),
                        .part = micro_batch,
                        .replicas = replicas,
                        .stages = stages,
                        .balance = balance,
                        .rates = rates};
  if (allocator) question.keys.push_back("alloc_conf=" + *allocator);
  if (host_memory) question.host_memory = parse_amount(*host_memory, "--host-memory");
  if (disk) static_cast<void>(parse_amount(*disk, "--disk"));
  if (question.budget.share && *question.budget.share <= 0)
    throw UsageError(expectation("--budget", "a share or a size above 0", budget));
  if (has("--batch")) question.rows = chosen.batch;
  question.cards = machine::cards_to_fill(question.gpus);
  return by_rule(std::move(question), chosen);
}

}  // namespace headroom::cli
