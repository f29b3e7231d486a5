// Memory that bends: a step under ever smaller limits of memory, whose saved tensors and optimizer
// states wait on the host. First to the bit, with a small net; then the speed of published models.
#include "headroom/memory/spill.h"

#include <array>
#include <chrono>
#include <cstdio>

#include "headroom/base/text.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/model/model_catalogue.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/filled_step.h"
#include "tests/gpu_check/training.h"

namespace headroom::gpu_check {
namespace {

using model::Dtype;
using model::Optimizer;
using model::OptimizerForm;
using model::Settings;

constexpr std::array kPercents{100, 90, 80, 70, 60};
constexpr int kSteps = 8, kWarmUp = 4;  // by then nothing should be refused any more

std::string limited(Bytes peak, int percent, Place& place) {
  place.limit(Bytes{peak.count * percent / 100});
  return std::to_string(percent) + " %";
}

// ---- To the bit ----

TrainingSizes small_on(const Place& place) {
  if (place.is_simulated()) return {.layers = 3, .rows = 32};
  return {.layers = 6, .width = 1024, .rows = 16, .tokens = 256};
}

std::vector<at::Tensor> trained(c10::Device device, const Place& place, memory::Spill* spill) {
  Training training(device, small_on(place));
  for (int step = 0; step < 4; ++step) {
    if (spill == nullptr) {
      training.step();
      continue;
    }
    {
      const auto saved = spill->scope();
      training.step();
    }
    spill->end_step();
  }
  return training.values();
}

void check_bits(Place& place, c10::Device device, std::vector<std::string>& complaints,
                Json& figures) {
  const auto right = trained(device, place, nullptr);
  const Bytes peak = memory::get_gpu_memory_stats(device).max_reserved;
  figures["to_the_bit"] = Json::array();
  // Simulated cards are so small that their pages count.
  const std::vector<int> percents =
      place.is_simulated() ? std::vector{100, 90} : std::vector{100, 85, 70};
  for (const int percent : percents) {
    memory::memory_of(device).empty_cache();
    const std::string share = limited(peak, percent, place);
    memory::Spill spill;
    if (!equal_to_the_bit(trained(device, place, &spill), right))
      complaints.push_back("at " + share + " the weights are others");
    const memory::SpillUse use = spill.use();
    if (percent == 100 && use.moved > Bytes{}) complaints.push_back("something moved at 100 %");
    if (percent == percents.back() && use.moved == Bytes{})
      complaints.push_back("nothing moved at " + share);
    figures["to_the_bit"].push_back(
        {{"percent", percent}, {"refused", use.refused}, {"moved", use.moved.count}});
  }
  place.limit({});
}

// ---- The speed ----

struct Timing {
  const char* model;
  Settings settings;
};

const std::vector<Timing>& cases_on(const Place& place) {
  static const std::vector<Timing> real{
      {"gpt2", {.batch = 8, .seq = 1024, .dtype = Dtype::bfloat16}},
      {"gpt2-xl", {.batch = 8, .seq = 1024, .dtype = Dtype::bfloat16, .checkpoint_every = 1}},
      {"vit-base", {.batch = 64, .form = OptimizerForm::foreach}},
      {"resnet50",
       {.batch = 64, .optimizer = Optimizer::sgd_momentum, .form = OptimizerForm::foreach}}};
  static const std::vector<Timing> simulated{
      {"deit-tiny", {.batch = 4, .form = OptimizerForm::fused}}};
  return place.is_simulated() ? simulated : real;
}

struct Timed {
  double rows_per_s = 0;
  memory::SpillUse use;
};

Timed timed(const estimate::TrainingStep& step, const Settings& settings, c10::Device device,
            int steps) {
  memory::DeviceMemory& memory = memory::memory_of(device);
  memory::Spill spill;
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    {
      const auto saved = spill.scope();
      step.subject.step();
    }
    spill.end_step(step.subject.states);
    memory.synchronize(device.index());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (2 * i >= steps) seconds.push_back(taken.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {static_cast<double>(settings.batch) / seconds[seconds.size() / 2], spill.use()};
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

// "gpt2 412.10 rows/s, 0.99 at 90 %, ..."
std::string check_speed(const Timing& one, Place& place, c10::Device device,
                        std::vector<std::string>& complaints, Json& figures) {
  const model::NamedModel model = model::model_named(one.model);
  const int steps = place.is_simulated() ? kWarmUp : kSteps;
  Json row{{"model", one.model}, {"settings", model::to_json(one.settings)}, {"at", Json::array()}};
  std::string words;
  try {
    const estimate::TrainingStep step = filled_step(model.config, one.settings, device);
    (void)timed(step, one.settings, device, 2);
    memory::reset_peak_memory_stats(device);
    memory::memory_of(device).empty_cache();
    (void)timed(step, one.settings, device, 2);
    const Bytes peak = memory::get_gpu_memory_stats(device).max_reserved;
    double whole = 0;
    for (const int percent : kPercents) {
      if (place.is_simulated() && percent % 20 != 0) continue;
      memory::memory_of(device).empty_cache();
      const std::string share = limited(peak, percent, place);
      const Timed now = timed(step, one.settings, device, steps);
      if (percent == 100) whole = now.rows_per_s;
      const double ratio = now.rows_per_s / whole;
      words += percent == 100 ? std::string(one.model) + " " + number(whole) + " rows/s"
                              : ", " + number(ratio) + " of it at " + share;
      row["at"].push_back({{"percent", percent},
                           {"rows_per_s", now.rows_per_s},
                           {"of_whole", ratio},
                           {"refused", now.use.refused},
                           {"refused_in_last_step", now.use.refused_in_step},
                           {"moved_in_last_step", now.use.moved_in_step.count},
                           {"peak_waiting", now.use.peak_waiting.count}});
    }
  } catch (...) {
    if (!libtorch::is_out_of_memory(std::current_exception())) throw;
    if (words.empty())
      words = std::string(one.model) + " does not fit this card";
    else
      words += ", below that out of memory";
    if (row["at"].size() == 1) complaints.push_back(std::string(one.model) + " died at 90 %");
  }
  place.limit({});
  memory::memory_of(device).empty_cache();
  figures["models"].push_back(std::move(row));
  return words;
}

}  // namespace

Outcome check_spill(Place& place) {
  const c10::Device device = place.open();
  std::vector<std::string> complaints, words;
  Json figures{{"models", Json::array()}};
  check_bits(place, device, complaints, figures);
  for (const Timing& one : cases_on(place))
    words.push_back(check_speed(one, place, device, complaints, figures));
  return judged(complaints, "weights equal to the bit with less memory; " + join(words, "; "),
                std::move(figures));
}

}  // namespace headroom::gpu_check
