// `headroom train`: reads the configuration, finds a place for the run and reserves it;
// headroom-engine trains.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/complaint.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/place_of_training.h"
#include "headroom/cli/core/planning/plan_of_training.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/training_config.h"
#include "headroom/cli/core/training_folder.h"
#include "headroom/config/help.h"
#include "headroom/config/training_keys.h"
#include "headroom/machine/look.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  std::vector<std::string> words;
  std::string preset = "default", gpus;
  std::optional<std::string> file, trace, snapshot, html;
  std::vector<std::string> inject;
  bool resume = false, dry_run = false, eval_only = false, json = false, help_keys = false;
};

config::Sources sources_of(const TrainOptions& options) {
  config::Sources sources{.preset = options.preset, .file = {}, .overrides = options.words};
  if (options.file) sources.file = *options.file;
  return sources;
}

// ---- The place ----

// `device` names a card of the machine or of the box in --gpus; it beats --gpus auto.
gpu::Devices devices_of(const TrainOptions& options, const config::Resolved& config) {
  gpu::Devices devices = gpu::devices_from(options.gpus);
  const std::string device = config.text("device");
  const bool is_simulated = devices.kind == gpu::Devices::Kind::simulated;
  if (device.starts_with("sim") && !is_simulated)
    throw UsageError(
        expectation("device", "simulated cards for " + device, "none", "--gpus sim:1x24GiB"));
  if (is_simulated && !lower(devices.text).starts_with("sim:") && !options.dry_run)
    throw UsageError(expectation("--gpus", "cards to train on", devices.text,
                                 "--gpus auto, or sim:... to simulate some"));
  const int number = static_cast<int>(config.number_in("device").value_or(0));
  if (const auto cards = static_cast<int>(devices.box.cards.size());
      device.starts_with("sim") && number >= cards)
    throw UsageError(expectation(
        "device", "a card of the simulated box, sim:0 to sim:" + std::to_string(cards - 1),
        device));
  if (device == "cpu") return gpu::parse_devices("cpu");
  if (device.starts_with("cuda"))
    return gpu::parse_devices(std::to_string(config.number_in("device").value_or(0)), "device");
  return devices;
}

// Checks now the files that a run writes or reads late.
void check_places(const TrainOptions& options, const config::Resolved& config) {
  const std::vector<std::string> files{options.trace.value_or(""), options.snapshot.value_or(""),
                                       options.html.value_or("")};
  check_outputs("train", files, {options.file.value_or("")});
  if (options.dry_run &&
      std::any_of(files.begin(), files.end(), [](const auto& file) { return !file.empty(); }))
    throw UsageError(expectation("--dry-run", "a run that trains, for --trace, --snapshot, --html",
                                 "one that trains nothing", "`headroom estimate --html`"));
  if (const auto plans = config.optional_text("plan_schedule"); plans && !fs::exists(*plans))
    throw InputError("plan_schedule", "expected a file of plans, received none at " + *plans);
  if (options.dry_run || options.eval_only) return;
  if (config.text("out").empty())
    throw UsageError(expectation("out", "a folder for out", "none", "out=headroom-run"));
  fs::path out = fs::absolute(config.text("out"));
  std::error_code error;
  while (!fs::exists(out, error) && !error) out = out.parent_path();  // where it will be made
  if (error) throw WriteError(write_failure(config.text("out"), error.value()));
  if (!fs::is_directory(out)) throw WriteError(write_failure(config.text("out"), ENOTDIR));
  check_run_folder(config.text("out"), {"config.yaml", "metrics.jsonl", "plan_schedule.jsonl",
                                        "best", result_name(config)});
  if (::access(out.c_str(), W_OK) != 0) throw WriteError(write_failure(config.text("out"), errno));
}

std::vector<std::int64_t> counts_of(const std::vector<Bytes>& sizes) {
  std::vector<std::int64_t> counts;
  for (const Bytes size : sizes) counts.push_back(size.count);
  return counts;
}

// False if a dry run finds that no plan fits.
bool plan_is_taken(const TrainOptions& options, config::Resolved& config,
                   const gpu::Devices& devices, const std::function<void(std::string_view)>& say) {
  try {
    take_plan(config, devices, say);
    return true;
  } catch (const OutOfMemoryError& error) {
    if (!options.dry_run) throw;
    say(error.sentence());
    return false;
  }
}

// ---- The command ----

ExitCode run_train(const TrainOptions& options) {
  if (options.help_keys) {
    print(config::help_of(config::training_keys(), standard_output().width));
    return kOk;
  }
  std::signal(SIGUSR1, SIG_IGN);  // a batch system's warning, before there is anything to save
  const TrainingSettings settings =
      settings_for(sources_of(options), options.resume, options.eval_only);
  config::Resolved config = settings.config;
  const gpu::Devices devices = devices_of(options, config);
  const auto say = [](std::string_view line) {
    print_error("headroom train: " + std::string(line) + "\n");
  };
  if (!settings.goes_on)
    if (const auto variant = choose_variant(config, devices)) say(*variant);
  config::take_model_of_adapter(config);
  config::choose_dataset(config);
  for (const std::string& sentence : check_use_of_keys(config::Training(config))) say(sentence);
  if (options.dry_run)
    for (const std::string& line : config::stand_in_for_files(config)) say(line);
  check_places(options, config);
  if (!settings.goes_on && !options.eval_only && !plan_is_taken(options, config, devices, say))
    return kDoesNotFit;
  if (const std::string allocator = config.text("alloc_conf"); !allocator.empty())
    ::setenv("PYTORCH_CUDA_ALLOC_CONF", allocator.c_str(), 1);
  // Missing ones are said before a wait for a card.
  if (!settings.goes_on) static_cast<void>(config::weights_of(config));
  const bool has_data =
      config.text("dataset") == "synthetic" || fs::exists(config.text("data_dir"));
  // The engine describes the files expected in that folder, and needs no card for that.
  DryPlace dry{devices};
  if (options.dry_run) dry = dry_place(devices, config::Training(config));
  config::Training training(config);
  if (!dry.usable.empty()) training.sharing.on.clear();  // its cards are in that order already
  const auto place = has_data ? take_place(training, dry.devices) : std::nullopt;
  const Json request{
      {"config", config.given()},
      {"base", settings.sources.base ? Json(settings.sources.base->string()) : Json()},
      {"goes_on", settings.goes_on},
      {"gpus", !place                     ? "cpu"
               : dry.devices.text.empty() ? "auto"
                                          : dry.devices.text},
      {"cards", place ? place->cards : std::vector<int>{}},  // none: the CPU
      {"uuids", place ? place->uuids : std::vector<std::string>{}},
      {"lease", place ? or_null(place->lease) : Json()},
      {"usable_bytes", counts_of(dry.usable)},
      {"resume", options.resume},
      {"dry_run", options.dry_run},
      {"eval_only", options.eval_only},
      {"trace", or_null(options.trace)},
      {"snapshot", or_null(options.snapshot)},
      {"html", or_null(options.html)},
      {"inject", options.inject},
      {"json", options.json}};
  become_engine({"train", to_line(request)});
}

}  // namespace

void add_train(Registry& registry) {
  auto [command, options] = registry.add(
      &run_train, "train", "Train a model; when memory runs out, no step is lost",
      "  headroom train model=lora dataset=flowers102 data_dir=data/flowers102\n"
      "  headroom train model=linear_probe dataset=cub200 batch_size=64 bf16=true\n"
      "  headroom train --config-name robust model=full model.config=gpt2 dataset=tokens \\\n"
      "      data_dir=data/books seq=1024 steps=2000 save_every=200\n"
      "  headroom train --resume out=headroom-run\n"
      "  headroom train model=gpt-tiny dataset=synthetic steps=50 --gpus sim:1x1GiB\n"
      "  headroom train model=full model.config=gpt-neox-20b dtype=bfloat16 stages=8 \\\n"
      "      dataset=tokens data_dir=data/books\n"
      "  headroom train --help-keys\n\n"
      "A key=value overrides the file, which overrides the preset. When a batch does not fit, the\n"
      "step runs in smaller parts, with checkpointing, or with activations in host memory: the\n"
      "effective batch and the result stay the same. replicas= and stages= train on several "
      "cards:\n"
      "copies of the model, and models that no single card holds. Ctrl-C finishes the step and "
      "saves;\n"
      "--resume goes on with the folder's settings, and --eval-only out=FOLDER evaluates its "
      "model.\n"
      "Exit: 0, 76 out of memory in every plan, 75 no room in time, 65 missing data or weights,\n"
      "69 no GPU, 64 wrong usage, 73 cannot write, 130 or 143 after Ctrl-C or SIGTERM; with\n"
      "--dry-run 2 if it does not fit.");
  command->add_option("settings", options->words, "key=value, see --help-keys")
      ->option_text("key=value ...");
  command->add_option("--config", options->file, "A YAML file with keys");
  command->add_option("--config-name", options->preset, "A preset: default or robust")
      ->capture_default_str();
  add_gpus_option(command, options->gpus);
  command->add_flag("--resume", options->resume,
                    "Resume from the newest valid checkpoint in `out`");
  command->add_flag("--dry-run", options->dry_run, "Show plan, memory and time; train nothing");
  command->add_flag("--eval-only", options->eval_only, "Evaluate; train nothing");
  command->add_option("--trace", options->trace,
                      "Write the run's memory events to this file; on several cards, as with the "
                      "next two, a file each: run.trace is run.cuda0.trace, run.cuda1.trace");
  command->add_option("--snapshot", options->snapshot,
                      "Write them as a snapshot for pytorch.org/memory_viz");
  command->add_option("--html", options->html,
                      "Write a page that shows the run's memory over time, for a browser");
  command
      ->add_option("--inject", options->inject,
                   "For tests, on simulated cards: make an allocation fail, oom@K, oom@K:lasting, "
                   "oom@K:every=N, oom@step=S, oom@step=S:phase=P with P data, forward, backward, "
                   "optimizer or eval, or neighbour@step=S:30%; :card=N at the end means that card "
                   "alone; repeat it for more")
      ->allow_extra_args(false);
  command->add_flag("--help-keys", options->help_keys, "List all keys with defaults");
  command->add_flag("--json", options->json, "Print one JSON document at the end");
}

}  // namespace headroom::cli
