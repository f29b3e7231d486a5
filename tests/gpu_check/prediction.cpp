// Headroom's prediction beside what the card needs: allocated and reserved memory at their peaks,
// and the memory of the process. Models of 5.7 M to 3.2 B parameters, of random values: nothing is
// downloaded.
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "headroom/base/text.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/dryrun/step_run.h"
#include "headroom/estimate/estimate.h"
#include "headroom/estimate/training_step.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/model/model_catalogue.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/filled_step.h"

namespace headroom::gpu_check {
namespace {

using model::Dtype;
using model::Optimizer;
using model::OptimizerForm;
using model::Settings;

struct Case {
  const char* name;
  const char* model;
  Settings settings;
};

// From small to large: a card that is too small for one is too small for most that follow.
const std::vector<Case> kCases{
    {"deit_tiny_fp32", "deit-tiny", {.batch = 4, .form = OptimizerForm::foreach}},
    {"resnet50_fp32",
     "resnet50",
     {.batch = 32, .optimizer = Optimizer::sgd_momentum, .form = OptimizerForm::loop}},
    {"t5_small_bf16", "t5-small", {.batch = 16, .seq = 256, .dtype = Dtype::bfloat16}},
    {"bert_base_fp32", "bert-base", {.batch = 16, .seq = 128, .form = OptimizerForm::foreach}},
    {"bert_base_bf16_lora",
     "bert-base",
     {.batch = 32, .seq = 256, .dtype = Dtype::bfloat16, .lora_rank = 8}},
    {"gpt2_fp32", "gpt2", {.batch = 4, .seq = 512}},
    {"gpt2_bf16_checkpointed",
     "gpt2",
     {.batch = 8, .seq = 1024, .dtype = Dtype::bfloat16, .checkpoint_every = 1}},
    {"qwen_0_5b_bf16", "qwen2.5-0.5b", {.batch = 2, .seq = 1024, .dtype = Dtype::bfloat16}},
    {"tinyllama_1_1b_bf16_checkpointed",
     "tinyllama-1.1b",
     {.batch = 2,
      .seq = 2048,
      .dtype = Dtype::bfloat16,
      .form = OptimizerForm::foreach,
      .checkpoint_every = 1}},
    {"llama_1b_fp32", "llama-3.2-1b", {.batch = 1, .seq = 512}},
    {"llama_3b_bf16_lora_checkpointed",
     "llama-3.2-3b",
     {.batch = 2, .seq = 1024, .dtype = Dtype::bfloat16, .checkpoint_every = 1, .lora_rank = 16}},
    {"llama_3b_bf16_checkpointed",
     "llama-3.2-3b",
     {.batch = 1, .seq = 1024, .dtype = Dtype::bfloat16, .checkpoint_every = 1}}};

// The largest relative errors that pass. The context is measured per chip, and drivers differ.
constexpr double kAllocated = 0.01, kReserved = 0.03, kProcess = 0.05;

struct Memory {
  Bytes allocated, reserved;
  std::optional<Bytes> process;
};

Json to_json(const Memory& memory) {
  return {{"allocated", memory.allocated.count},
          {"reserved", memory.reserved.count},
          {"process", or_null(memory.process)}};
}

Memory predicted(const model::NamedModel& model, const Settings& settings,
                 const gpu::SimulatedCard& card) {
  const auto estimate = estimate::estimate_memory(model, settings, dryrun::without_limit(card));
  const trace::Peak& peak = estimate.report.peak;
  Memory memory{peak.allocated, peak.reserved, {}};
  if (!card.profile.empty()) memory.process = peak.process;
  return memory;
}

// The process as NVML lists it. In a container NVML does not name this process: then what the card
// lost since before the process touched it.
class ProcessMemory {
 public:
  explicit ProcessMemory(const Place& place) : place_(place), before_(place.of_driver()) {}

  void measure(Memory& memory, Json& figures) const {
    const auto now = place_.of_driver();
    if (!now || !now->memory || !before_ || !before_->memory) return;
    if (now->processes)
      for (const gpu::GpuProcess& process : *now->processes)
        if (process.pid == ::getpid() && process.used) {
          memory.process = process.used;
          figures["process_from"] = "NVML's list of processes";
          return;
        }
    memory.process = now->memory->used - before_->memory->used;
    figures["process_from"] = "the rise of the card's used memory";
  }

 private:
  const Place& place_;
  const std::optional<gpu::Card> before_;
};

Memory measured(const model::NamedModel& model, const Settings& settings, Place& place,
                Json& figures) {
  const ProcessMemory process(place);
  const c10::Device device = place.open();
  const estimate::TrainingStep step = filled_step(model.config, settings, device);
  memory::reset_peak_memory_stats(device);
  for (int i = 0; i < settings.steps; ++i) step.subject.step();
  memory::memory_of(device).synchronize(device.index());  // throws if a kernel failed
  const memory::GpuMemoryStats stats = memory::get_gpu_memory_stats(device);
  figures["retries"] = stats.retries;
  Memory memory{stats.max_allocated, stats.max_reserved, {}};
  process.measure(memory, figures);
  return memory;
}

double error(Bytes predicted, Bytes measured) {
  return static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1;
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%+.2f%%", 100 * share);
  return text.data();
}

Outcome compare(const Memory& ours, const Memory& theirs, Json figures) {
  std::vector<std::string> words, complaints;
  Json errors = Json::object();
  const auto one = [&](const char* name, Bytes predicted, Bytes measured, double most) {
    const double by = error(predicted, measured);
    errors[name] = by;
    words.push_back(std::string(name) + " " + to_string(measured) + " (" + percent(by) + ")");
    if (std::abs(by) > most)
      complaints.push_back(std::string(name) + ": predicted " + to_string(predicted) +
                           ", measured " + to_string(measured) + " (" + percent(by) + ")");
  };
  one("allocated", ours.allocated, theirs.allocated, kAllocated);
  one("reserved", ours.reserved, theirs.reserved, kReserved);
  if (ours.process && theirs.process) one("process", *ours.process, *theirs.process, kProcess);
  figures["error"] = std::move(errors);
  return judged(complaints, join(words, ", "), std::move(figures));
}

Outcome check(const Case& one, Place& place) {
  const gpu::SimulatedCard card = place.described();
  const model::NamedModel model = model::model_named(one.model);
  const Memory ours = predicted(model, one.settings, card);
  Json figures{{"model", one.model},
               {"settings", model::to_json(one.settings)},
               {"card", card.name},
               {"predicted", to_json(ours)}};
  const auto in_use = place.of_driver();
  const Bytes room = in_use && in_use->memory ? in_use->memory->free : gpu::room_of(card);
  if (const Bytes need = ours.process.value_or(ours.reserved); need > room)
    return not_run("needs " + to_string(need) + ", and " + to_string(room) + " are free",
                   std::move(figures));
  const Memory theirs = measured(model, one.settings, place, figures);
  figures["measured"] = to_json(theirs);
  return compare(ours, theirs, std::move(figures));
}

}  // namespace

std::vector<Check> prediction_checks() {
  std::vector<Check> checks;
  for (const Case& one : kCases)
    checks.push_back({std::string("prediction.") + one.name,
                      std::string("predicted and measured memory of ") + one.model, Needs::card,
                      [&one](Place& place) { return check(one, place); }});
  return checks;
}

}  // namespace headroom::gpu_check
