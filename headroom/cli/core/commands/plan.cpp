// `headroom plan`: how a model trains on these cards. With prices that are known from earlier plans
// it answers at once; else headroom-engine makes dry runs of stages.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/settings_options.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/config/train_words.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/devices.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/model/meaning.h"

namespace headroom::cli {
namespace {

struct PlanOptions {
  std::string model, gpus, budget = "0.7", tune = "full", rates;
  std::optional<std::string> allocator;
  std::optional<std::int64_t> micro_batch;
  std::optional<int> replicas, stages;
  SettingsOptions settings;
  bool balance = false, json = false;
};

// As `headroom train` takes them: cards of the catalogue as simulated ones; the whole cards that
// this process may see, by number, where none are named.
std::string gpus_of(const PlanOptions& options) {
  const gpu::Devices devices = gpu::devices_from(options.gpus);
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

PlanQuestion question_of(const PlanOptions& options) {
  const std::vector<std::string> given = options.settings.given();
  const model::Settings settings = options.settings.settings();
  const model::NamedModel model = model::model_named(options.model);
  check_meaning(model.config, settings, given);
  PlanQuestion question{.model = options.model,
                        .keys = config::train_words(settings, given),
                        .gpus = gpus_of(options),
                        .budget = parse_share_or_amount(options.budget, "--budget"),
                        .tune = tune_named(options.tune),
                        .part = options.micro_batch,
                        .replicas = options.replicas,
                        .stages = options.stages,
                        .balance = options.balance,
                        .rates = options.rates};
  if (options.allocator) question.keys.push_back("alloc_conf=" + *options.allocator);
  const auto has = [&](const char* name) {
    return std::find(given.begin(), given.end(), name) != given.end();
  };
  if (question.budget.share && *question.budget.share <= 0)
    throw UsageError(expectation("--budget", "a share or a size above 0", options.budget));
  if (has("--batch")) question.rows = settings.batch;
  question.cards = machine::cards_to_fill(question.gpus);
  return question;
}

ExitCode run_plan(const PlanOptions& options) {
  const PlanQuestion question = question_of(options);
  try {
    return print_plan(question, plan_for(question, none_can_be_made()), options.json);
  } catch (const NotPriced&) {
  }
  become_engine({"plan", to_line({{"question", to_json(question)}, {"json", options.json}})});
}

}  // namespace

void add_plan(Registry& registry) {
  auto [command, options] = registry.add(
      &run_plan, "plan", "Find the fastest way to train a model on these cards",
      "  headroom plan 7B --batch 32 --seq 1024 --dtype bfloat16 --gpus sim:8x31.36GiB\n"
      "  headroom plan llama-3.1-8b --tune any --gpus \"RTX 4090\"\n"
      "  headroom plan 13B --dtype bfloat16 --gpus all --json\n"
      "  headroom plan gpt2 --gpus sim:1x24GiB,1x80GiB --micro-batch 4\n\n"
      "Replicas of the model, stages of it, or both; which layers lie on which card; the rows of "
      "a\n"
      "forward pass; and which stages compute activations again. What you give is fixed. It "
      "prints\n"
      "the `headroom train` command that runs the plan. Every plan that it shows was run without\n"
      "data (a dry run), so its memory is known to the byte; times are estimates.\n"
      "Exit: 0 there is a plan, 2 nothing fits, 64 wrong usage, 65 a wrong configuration,\n"
      "69 no such GPU.");
  command
      ->add_option("model", options->model,
                   "A config.json or its folder, a model's name, or a size (7B)")
      ->required();
  add_gpus_option(command, options->gpus);
  command
      ->add_option("--tune", options->tune,
                   "What may be trained: full (all weights), lora (adapters), any (all weights "
                   "if they fit, else the lightest change)")
      ->capture_default_str();
  command
      ->add_option("--budget", options->budget,
                   "Most memory of a card for weights, gradients and optimizer states: 0.7, "
                   "70%, 20GiB")
      ->capture_default_str();
  command->add_option("--micro-batch", options->micro_batch, "Rows of a forward pass")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--replicas", options->replicas, "Copies of the model")
      ->check(CLI::Range(1, gpu::kMostCards));
  command->add_option("--stages", options->stages, "Cards that share one copy")
      ->check(CLI::Range(1, gpu::kMostCards));
  command->add_flag("--balance", options->balance,
                    "The fullest card has at most 15 % more of the model than the mean");
  command->add_option("--rates", options->rates,
                      "The card whose times and links all have (default: their own, or the "
                      "catalogue's nearest in memory)");
  command->add_option("--allocator", options->allocator,
                      "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF");
  options->settings.add_to(command, config::options_with_keys(),
                           {{"--batch", "Rows of a whole step (default 32)"}});
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
}

}  // namespace headroom::cli
