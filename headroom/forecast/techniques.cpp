#include "headroom/forecast/techniques.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "headroom/forecast/policies.h"
#include "headroom/forecast/step_time.h"
#include "headroom/model/can_run.h"

namespace headroom::forecast {
namespace {

std::int64_t effective_batch(const model::Settings& settings) {
  return settings.batch * settings.accumulation;
}

double seconds_per_token(const Forecast& forecast, const gpu::CatalogueCard* card) {
  const model::Settings& settings = forecast.settings;
  return step_seconds(forecast, card) / static_cast<double>(effective_batch(settings)) /
         static_cast<double>(settings.seq.value_or(1));
}

// ---- The changes ----

struct Change {
  std::string name, option;
  model::Settings settings;
  bool changes_training = false;
};

class Changes {
 public:
  Changes(const model::ModelConfig& config, const Forecast& now, const TechniqueOptions& options)
      : config_(config), now_(now.settings), options_(options) {
    if (now_.mode == model::Mode::train) {
      recomputing();
      optimizers();
      adapters();
    }
    precision();
    kernels();
    losses();
    elsewhere();
    smaller();
  }
  [[nodiscard]] const std::vector<Change>& all() const { return all_; }

 private:
  template <typename Apply>
  void add(bool possible, const char* name, std::string option, bool changes_training,
           const Apply& apply) {
    if (!possible) return;
    Change change{name, std::move(option), now_, changes_training};
    apply(change.settings);
    all_.push_back(std::move(change));
  }

  [[nodiscard]] bool is_language_model() const {
    return now_.task == model::Task::causal_lm || now_.task == model::Task::masked_lm ||
           now_.task == model::Task::seq2seq_lm;
  }

  void recomputing() {
    add(now_.checkpoint_every != 1, "checkpointing, every layer", "--checkpointing full", false,
        [](model::Settings& s) { s.checkpoint_every = 1; });
    add(now_.checkpoint_every == 0, "checkpointing, every second layer", "--checkpointing every:2",
        false, [](model::Settings& s) { s.checkpoint_every = 2; });
  }

  void optimizers() {
    const bool adam =
        now_.optimizer == model::Optimizer::adam || now_.optimizer == model::Optimizer::adamw;
    const bool has_fused = adam || now_.optimizer == model::Optimizer::sgd ||
                           now_.optimizer == model::Optimizer::sgd_momentum;
    add(has_fused && now_.form != model::OptimizerForm::fused, "a fused optimizer",
        "--optimizer-impl fused", false,
        [](model::Settings& s) { s.form = model::OptimizerForm::fused; });
    add(adam, "Adam in 8 bit", "--optimizer adamw8bit", true,
        [](model::Settings& s) { s.optimizer = model::Optimizer::adamw8bit; });
    add(adam || now_.optimizer == model::Optimizer::adamw8bit, "Adafactor", "--optimizer adafactor",
        true, [](model::Settings& s) { s.optimizer = model::Optimizer::adafactor; });
    add(now_.optimizer != model::Optimizer::sgd && now_.optimizer != model::Optimizer::none,
        "plain SGD", "--optimizer sgd", true,
        [](model::Settings& s) { s.optimizer = model::Optimizer::sgd; });
    add(!now_.optimizer_in_backward && now_.accumulation == 1 && !now_.clip,
        "each parameter's update in the backward pass", "--optimizer-in-backward", false,
        [](model::Settings& s) { s.optimizer_in_backward = true; });
    add(now_.zero_gradients, "gradients freed after the step", "--zero-grad none", false,
        [](model::Settings& s) { s.zero_gradients = false; });
  }

  void adapters() {
    const bool has_targets = config_.type() != "resnet" && config_.type() != "convnext";
    const bool whole = now_.lora_rank == 0 && !now_.freeze_backbone && has_targets;
    add(whole, "LoRA", "--lora-rank 8", true, [](model::Settings& s) { s.lora_rank = 8; });
    const bool quantises = has_targets && now_.quantize == model::Quantize::none;
    const std::string rank = now_.lora_rank > 0 ? "" : " --lora-rank 8";
    add(quantises && (whole || now_.lora_rank > 0), "LoRA over 8-bit weights",
        "--quantize 8bit" + rank, true, [&](model::Settings& s) {
          s.quantize = model::Quantize::int8;
          s.lora_rank = now_.lora_rank > 0 ? now_.lora_rank : 8;
        });
    add(has_targets && now_.quantize != model::Quantize::int4 && (whole || now_.lora_rank > 0),
        "LoRA over 4-bit weights", "--quantize 4bit" + rank, true, [&](model::Settings& s) {
          s.quantize = model::Quantize::int4;
          s.lora_rank = now_.lora_rank > 0 ? now_.lora_rank : 8;
        });
  }

  void precision() {
    const bool wide = now_.dtype == model::Dtype::float32;
    // A chip without bf16 units computes bf16 as slowly as float32.
    const bool has_bf16 = options_.card == nullptr || options_.card->rates.bf16.has_value();
    add(wide && now_.autocast == model::Autocast::none && has_bf16, "computing in bf16",
        "--autocast bf16", false, [](model::Settings& s) { s.autocast = model::Autocast::bf16; });
    add(wide && now_.autocast == model::Autocast::none && !has_bf16, "computing in fp16",
        "--autocast fp16", false, [](model::Settings& s) { s.autocast = model::Autocast::fp16; });
    const std::string alone = now_.autocast == model::Autocast::none ? "" : " --autocast none";
    add(wide, "everything in bf16", "--dtype bfloat16" + alone, now_.mode == model::Mode::train,
        [](model::Settings& s) {
          s.dtype = model::Dtype::bfloat16, s.autocast = model::Autocast::none;
        });
  }

  void kernels() {
    const auto in_sdpa = model::Attention::sdpa;
    const bool has_sdpa = model::attention_of(config_, now_.transformers, in_sdpa) == in_sdpa &&
                          config_.type() != "resnet" && config_.type() != "convnext";
    add(has_sdpa && now_.attention == model::Attention::eager, "attention in one kernel",
        "--attention sdpa", false,
        [](model::Settings& s) { s.attention = model::Attention::sdpa; });
    add(now_.use_cache && now_.mode == model::Mode::train, "no cache of keys and values",
        "no --use-cache", false, [](model::Settings& s) { s.use_cache = false; });
    add(now_.hold_outputs, "outputs let go before the backward pass", "no --hold-outputs", false,
        [](model::Settings& s) { s.hold_outputs = false; });
  }

  void losses() {
    const bool can = is_language_model() && now_.mode == model::Mode::train &&
                     now_.loss == model::LossForm::full;
    add(can, "the loss in chunks of 1024 tokens", "--loss chunked:1024", false,
        [](model::Settings& s) { s.loss = model::LossForm::chunked, s.loss_chunk = 1024; });
    add(can, "head and loss in one, without logits", "--loss fused", false,
        [](model::Settings& s) { s.loss = model::LossForm::fused; });
  }

  void elsewhere() {
    const bool trains = now_.mode == model::Mode::train;
    const auto with = [&](const char* what) {
      std::string list;
      const auto name = [&](bool on, const char* part) {
        if (on || std::string_view(part) == what)
          list += (list.empty() ? "" : ",") + std::string(part);
      };
      name(now_.offload.optimizer, "optimizer");
      name(now_.offload.gradients, "gradients");
      name(now_.offload.parameters, "parameters");
      name(now_.offload.activations, "activations");
      return "--offload " + list;
    };
    add(trains && !now_.offload.optimizer, "the optimizer on the host", with("optimizer"), false,
        [](model::Settings& s) { s.offload.optimizer = true; });
    add(!now_.offload.parameters, "parameters on the host", with("parameters"), false,
        [](model::Settings& s) { s.offload.parameters = true; });
    add(trains && !now_.offload.activations, "activations on the host", with("activations"), false,
        [](model::Settings& s) { s.offload.activations = true; });
    for (const int stage : {1, 2, 3}) {
      static constexpr const char* kNames[] = {"", "ZeRO 1: states over all GPUs",
                                               "ZeRO 2: gradients, too", "ZeRO 3: parameters, too"};
      add(trains && options_.gpus > 1 && now_.zero < stage, kNames[stage],
          "--world " + std::to_string(options_.gpus) + " --zero " + std::to_string(stage), false,
          [&](model::Settings& s) { s.world = options_.gpus, s.zero = stage; });
    }
  }

  // Gradient accumulation keeps the effective batch. It needs gradients that last until the step.
  void smaller() {
    const bool sums = now_.mode != model::Mode::train || !now_.optimizer_in_backward;
    for (std::int64_t batch = now_.batch / 2; batch >= 1; batch /= 2) {
      if (now_.batch % batch != 0) continue;
      const std::int64_t accumulation = now_.accumulation * (now_.batch / batch);
      const bool trains = now_.mode == model::Mode::train;
      add(sums, "a smaller batch",
          "--batch " + std::to_string(batch) +
              (trains ? " --accumulation " + std::to_string(accumulation) : ""),
          false,
          [&](model::Settings& s) { s.batch = batch, s.accumulation = trains ? accumulation : 1; });
    }
    const std::int64_t seq = now_.seq.value_or(1) / 2, target = now_.target_seq.value_or(1) / 2;
    std::string option = "--seq " + std::to_string(seq);
    if (target > 0) option += " --target-seq " + std::to_string(target);
    add(now_.task != model::Task::image_classification && seq > 0, "a shorter sequence", option,
        now_.mode == model::Mode::train, [&](model::Settings& s) {
          s.seq = seq;
          if (target > 0) s.target_seq = target;
        });
  }

  const model::ModelConfig& config_;
  const model::Settings now_;
  const TechniqueOptions& options_;
  std::vector<Change> all_;
};

// ---- Results ----

std::optional<Bytes> room_of(const TechniqueOptions& options) {
  if (options.room || options.card == nullptr) return options.room;
  const gpu::DeviceProfile* profile = gpu::find_profile(options.card->profile);
  const Bytes context = profile != nullptr ? profile->context.value_or(Bytes{}) : Bytes{};
  return plannable(options.card->cuda_total.value_or(options.card->total) - context);
}

bool is_shorter(const Technique& technique) {
  return technique.option.starts_with("--seq");
}

auto rank_of(const Technique& technique) {
  return std::tuple(!technique.fits, is_shorter(technique), technique.changes_training,
                    std::round(technique.time_factor * 100), -technique.saves.count);
}

// Keeps one smaller batch: the largest that is enough, or else the smallest.
void keep_one_batch(std::vector<Technique>& all) {
  const auto is_batch = [](const Technique& t) { return t.option.starts_with("--batch"); };
  const Technique* kept = nullptr;
  for (const Technique& technique : all)
    if (is_batch(technique) && (kept == nullptr || !kept->fits)) kept = &technique;
  if (kept == nullptr) return;
  const std::string option = kept->option;
  std::erase_if(all, [&](const Technique& t) { return is_batch(t) && t.option != option; });
}

}  // namespace

std::vector<Technique> techniques(const model::ModelConfig& config, const model::Settings& settings,
                                  const TechniqueOptions& options) {
  const gpu::DeviceProfile* profile =
      options.card != nullptr ? gpu::find_profile(options.card->profile) : nullptr;
  const Forecast now = forecast_of(config, settings, profile);
  const double seconds = seconds_per_token(now, options.card);
  const std::optional<Bytes> room = room_of(options);
  const Changes changes(config, now, options);
  std::vector<Technique> all;
  for (const Change& change : changes.all()) {
    if (options.allows && !options.allows(change.settings)) continue;
    const Forecast then = forecast_of(config, change.settings, profile);
    Technique technique{.name = change.name,
                        .option = change.option,
                        .settings = change.settings,
                        .needs = then.reserved,
                        .process = then.process,
                        .saves = now.at_peak.total() - then.at_peak.total(),
                        .saves_process = now.process - then.process,
                        .changes_training = change.changes_training};
    if (technique.saves.count <= 0) continue;
    technique.time_factor = seconds_per_token(then, options.card) / seconds;
    technique.fits = !room || then.reserved <= *room;
    technique.can_run = !options.can_run || options.can_run(change.settings);
    all.push_back(std::move(technique));
  }
  keep_one_batch(all);
  std::sort(all.begin(), all.end(),
            [](const Technique& a, const Technique& b) { return rank_of(a) < rank_of(b); });
  return all;
}

}  // namespace headroom::forecast
