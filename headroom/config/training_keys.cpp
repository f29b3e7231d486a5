#include "headroom/config/training_keys.h"

#include <algorithm>
#include <utility>

#include "headroom/config/resolved.h"
#include "headroom/plan/technique.h"

namespace headroom::config {
namespace {

// ---- Defaults that depend on other keys ----

using Text = std::optional<std::string>;

// Fine-tuning of all weights takes a tenth: 5e-5 for AdamW, as transformers' Trainer has it.
Text usual_learning_rate(const Resolved& config) {
  const std::string optimizer = config.text("optimizer");
  const bool all_weights =
      config.text("model") == "full" && config.optional_text("weights") != "random";
  if (optimizer.starts_with("sgd") || optimizer == "adafactor")
    return all_weights ? "1e-3" : "1e-2";
  if (optimizer == "adafactor-hf") return all_weights ? "1e-4" : "1e-3";
  return all_weights ? "5e-5" : "5e-4";
}

// PyTorch's defaults.
Text usual_weight_decay(const Resolved& config) {
  return config.text("optimizer").starts_with("adamw") ? "0.01" : "0";
}

// What plain rounding loses, stochastic rounding keeps on average.
Text usual_rounding(const Resolved& config) {
  const auto optimizer = model::choice<model::Optimizer>(config.text("optimizer"));
  const bool rounds = config.text("dtype") == "bfloat16" && model::can_round(optimizer);
  return rounds ? "stochastic" : "nearest";
}

Text usual_config(const Resolved& config) {
  if (config.text("model") == "gpt-tiny") return {};
  return config.text("dataset") == "tokens" ? "gpt2" : "vit-base";
}

Text usual_alpha(const Resolved& config) {
  return std::to_string(config.whole("model.lora_r"));
}

Text usual_epochs(const Resolved& config) {
  return config.optional_whole("steps") ? Text{} : "3";
}

Text usual_folder(const Resolved& config) {
  const std::string dataset = config.text("dataset");
  return dataset == "synthetic" ? Text{} : "data/" + dataset;
}

Text usual_min_batch_size(const Resolved& config) {
  return std::to_string(std::min<std::int64_t>(4, config.whole("batch_size")));
}

// ---- Kinds of keys ----

Key known_as(std::vector<std::string> elsewhere, Key key) {
  key.elsewhere = std::move(elsewhere);
  return key;
}

constexpr double kMostCount = 1 << 24;  // far above any real run

Key text(const char* name, Text usual, const char* effect) {
  return {.name = name, .kind = Kind::text, .usual = std::move(usual), .effect = effect};
}
Key flag(const char* name, bool usual, const char* effect) {
  return {.name = name, .kind = Kind::flag, .usual = usual ? "true" : "false", .effect = effect};
}
Key count(const char* name, Text usual, double least, const char* effect) {
  return {.name = name,
          .kind = Kind::whole,
          .usual = std::move(usual),
          .effect = effect,
          .least = least,
          .most = kMostCount};
}
Key number(const char* name, Text usual, const char* effect) {
  return {.name = name, .kind = Kind::number, .usual = std::move(usual), .effect = effect};
}
Key choice(const char* name, std::vector<std::string> choices, const char* effect) {
  return {.name = name,
          .kind = Kind::choice,
          .usual = choices.front(),
          .effect = effect,
          .choices = std::move(choices)};
}
Key share(Kind kind, const char* name, const char* usual, const char* effect) {
  return {.name = name, .kind = kind, .usual = usual, .effect = effect, .most = 1};
}
Key between(double least, double most, Key key) {
  key.least = least;
  key.most = most;
  return key;
}
Key computed(Key key, Text (*how)(const Resolved&), const char* words) {
  key.usual.reset();
  key.computed = how;
  key.computed_words = words;
  return key;
}

// ---- The keys ----

std::vector<Key> model_keys() {
  return {
      choice("model", {"lora", "linear_probe", "full", "gpt-tiny"},
             "What is trained: adapters beside frozen weights, the head only, all weights, or a "
             "small GPT-2 from random weights."),
      computed(text("model.config", {},
                    "The model: a name of `headroom models --names`, or a config.json."),
               usual_config, "vit-base, gpt2 for dataset=tokens, its own for model=gpt-tiny"),
      count("model.lora_r", "8", 1, "Rank of the adapters."),
      computed(number("model.lora_alpha", {}, "The adapters' result is multiplied by this / rank."),
               usual_alpha, "the rank"),
      between(0, 1, number("model.lora_dropout", "0", "Dropout on the adapters' input.")),
      {.name = "model.lora_targets",
       .kind = Kind::words,
       .usual = "q,v",
       .effect = "Layers that get an adapter: q, k, v, o, all-linear, or names."},
      {.name = "model_variants",
       .kind = Kind::variants,
       .effect = "Models by the memory of the smallest card, in place of model.config: "
                 "[{min_total: 40GiB, model: vit-large, batch_size: 16}, {model: vit-base}]."},
      text("weights", {},
           "A safetensors file or a folder with some, or `random`. Default: the Hugging Face "
           "cache."),
      count("num_classes", {}, 1, "Classes of the head. Default: as many as the dataset has."),
      choice("attention", {"sdpa", "eager"}, "Implementation of attention."),
  };
}

std::vector<Key> data_keys() {
  return {
      choice("dataset", {"flowers102", "cub200", "images", "tokens", "synthetic"},
             "Flowers-102 and CUB-200 in the form in which they are published, a folder for each "
             "class, tokens in .bin files, or random data."),
      computed(text("data_dir", {}, "The folder of the dataset."), usual_folder,
               "data/ and the dataset's name"),
      text("train_data", "train.bin", "File with tokens to train on, in data_dir."),
      text("val_data", "val.bin", "File with tokens to evaluate on, in data_dir."),
      count("mask_token_id", {}, 0,
            "Token that hides others, for models trained with masks (BERT). Default: that of "
            "train.bin.json."),
      flag("loss_mask", true, "Where the tokens have a loss mask, only what it selects counts."),
      count("seq", {}, 1, "Tokens in a row. Default: 512, or the model's maximum if that is less."),
      count("examples", {}, 1, "Made-up examples of dataset=synthetic. Default: 1024 or a batch."),
      flag("skip_damaged", false, "Decode all images first, and leave out those that are damaged."),
      count("image", {}, 1, "Pixels per side of an image. Default: from the model, else 224."),
      between(0, 256,
              count("num_workers", "2", 0, "Threads that load data; 0: the training thread.")),
  };
}

std::vector<Key> batch_keys() {
  return {
      known_as({"per_device_train_batch_size"},
               count("batch_size", "32", 1,
                     "Rows of one forward pass. When they do not fit, the step runs in smaller "
                     "parts with the same result.")),
      count("micro_batch", {}, 1,
            "Rows of the parts of a batch, as a run begins. Default: batch_size, or with stages as "
            "many as keep them busy."),
      flag("auto_batch_size", true, "Choose the parts before the first step, by dry run."),
      computed(count("min_batch_size", {}, 1, "Rows that the parts of a batch have at least."),
               usual_min_batch_size, "4, or batch_size if that is less"),
      count("gradient_accumulation_steps", "1", 1, "Batches of one optimizer step."),
      count("eval_batch_size", {}, 1,
            "Rows of one forward pass in evaluations. Default: batch_size."),
  };
}

std::vector<Key> length_keys() {
  return {
      known_as({"num_epochs", "num_train_epochs"},
               computed(count("epochs", {}, 1, "Passes over the dataset."), usual_epochs,
                        "3, or as many as `steps` needs")),
      known_as({"max_steps"}, count("steps", {}, 1, "Stop after this many optimizer steps.")),
      count("eval_every", {}, 1, "Steps between evaluations. Default: one after each epoch."),
      count("early_stop", "0", 0,
            "Stop after this many evaluations without a better result; 0: never."),
      count("stop_on_nan", "0", 0,
            "Stop with exit code 1 after this many losses in a row that are not finite numbers; 0: "
            "never."),
  };
}

std::vector<Key> optimizer_keys() {
  return {
      choice(
          "optimizer",
          {"adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adafactor-hf", "adamw8bit",
           "adamw4bit"},
          "Optimizer, with PyTorch's settings. adamw8bit and adamw4bit keep their states in 8 or 4 "
          "bits."),
      choice("dtype", {"float32", "bfloat16"},
             "Type of weights, gradients and activations. bfloat16: everything in 16 bits, with no "
             "copy in float32."),
      computed(choice("rounding", {"nearest", "stochastic"},
                      "Rounding of the updates to weights in bfloat16. To nearest, small ones are "
                      "lost."),
               usual_rounding,
               "stochastic for dtype=bfloat16 with adamw, adamw8bit, adamw4bit, sgd or "
               "sgd-momentum, else nearest"),
      known_as(
          {"learning_rate"},
          computed(number("lr", {}, "Learning rate."), usual_learning_rate,
                   "5e-4 for all kinds of adam, 1e-2 for sgd, sgd-momentum and adafactor, 1e-3 "
                   "for adafactor-hf; for model=full a tenth of these, unless its weights are "
                   "random")),
      computed(number("weight_decay", {}, "Weight decay."), usual_weight_decay,
               "0.01 for all kinds of adamw, 0 for others"),
      choice("scheduler", {"constant", "linear", "cosine", "one-cycle"},
             "Course of the learning rate after the warm-up."),
      count("warmup_steps", "0", 0, "Steps over which the learning rate rises from 0."),
      number("max_grad_norm", "1.0", "Clips the norm of all gradients; 0: off."),
      {.name = "seed",
       .kind = Kind::whole,
       .usual = "0",
       .effect = "Seed of all random numbers; equal seeds give equal losses.",
       .most = 9007199254740992.0},  // 2^53: programs that read JSON keep it
  };
}

// Those of plan/techniques.
std::vector<Key> technique_keys() {
  std::vector<Key> all;
  for (const plan::Technique& technique : plan::techniques())
    for (const plan::Key& key : technique.keys)
      all.push_back(key.choices.empty()
                        ? flag(key.name, false, key.effect)
                        : between(1, kMostCount, choice(key.name, key.choices, key.effect)));
  return all;
}

std::vector<Key> memory_keys() {
  return {
      between(0.001, 1,
              share(Kind::share_or_bytes, "budget", "0.7",
                    "Most memory of a card that parameters, gradients and optimizer states may "
                    "take: 0.7, 70%, 20GiB. If it is given, a run that takes more is refused.")),
      {.name = "margin",
       .kind = Kind::share_or_bytes,
       .effect = "Memory of the card that a plan leaves free, if it can: 1GiB, 0.1, 10%. Default: "
                 "512MiB or 5%, whichever is more.",
       .most = 1},
      {.name = "host_memory",
       .kind = Kind::share_or_bytes,
       .effect =
           "Host memory for what waits there under `spill`: 32GiB, 0.3, 30%. Default: half of "
           "what is available.",
       .most = 1},
      count("max_retries", "3", 0, "Tries of one step with other plans, when memory runs out."),
      text("alloc_conf", "", "Settings of the allocator, as in PYTORCH_ALLOC_CONF."),
      flag("clear_memory_on_start", true, "Give cached memory back before the first step."),
      count("check_memory_every_n_steps", "5", 0, "Steps between looks at the card; 0: none."),
      share(Kind::share, "emergency_clean_above", "0.9",
            "Share of the card in use, by any process, above which cached memory is given back, "
            "or the plan made smaller."),
      count("clear_cache_every_n_steps", "0", 0,
            "Steps between clean-ups of the cache; 0: none. They cost time and save nothing."),
      text("plan_schedule", {}, "File with a plan for each step to follow. Every run writes one."),
  };
}

std::vector<Key> device_keys() {
  return {
      flag("auto_device", true, "Take the card with the most usable memory."),
      choice("device", {"auto", "cpu", "cuda:N", "sim:N"}, "The device; it overrides auto_device."),
      flag("allow_cpu", false, "Train on the CPU if no card has enough memory."),
      between(1, 64,
              count("replicas", "1", 1,
                    "Copies of the model, a card or a row of stages each. They divide the rows of "
                    "a step.")),
      between(1, 64,
              count("stages", {}, 1,
                    "Cards that share one model: each has some of its layers. Default: as many as "
                    "`split` names, else 1.")),
      {.name = "split",
       .kind = Kind::words,
       .effect = "Layers of each stage: 12,12,8. Default: as even as they can be."},
      {.name = "checkpointed_stages",
       .kind = Kind::words,
       .effect = "Stages that compute activations a second time instead of keeping them: 0,1."},
      {.name = "cards",
       .kind = Kind::words,
       .effect = "The card of each stage, of the first replica and then the next: 2,0,1. Numbers "
                 "count the cards of --gpus from 0. Default: in their order."},
      text("plan", {},
           "auto finds the fastest plan for the cards of --gpus, off takes one as the other keys "
           "say, and a file of `headroom plan --json` is obeyed. Default: auto where --gpus names "
           "several cards, else off."),
      choice("pipeline", {"1f1b", "gpipe"},
             "Order of the stages' passes: forward and backward in turn, or all forward passes "
             "first, which takes more memory."),
      flag("wait_for_gpu", false, "Wait until a card has enough usable memory."),
      count("min_gpu_memory_mb", "4000", 0,
            "Usable memory that a card must have, in MiB. If it is not given, a run whose need is "
            "known takes a card with that much."),
      between(0, 1e6, number("gpu_wait_timeout_minutes", "60", "Longest wait for a card.")),
      between(0.1, 86400,
              number("gpu_check_interval_seconds", "30", "Time between looks while waiting.")),
  };
}

std::vector<Key> result_keys() {
  return {
      known_as({"output_dir"},
               text("out", "headroom-run",
                    "Folder for checkpoints, metrics.jsonl and the configuration.")),
      count("save_every", {}, 1, "Steps between checkpoints. Default: only at the end."),
      count("keep_last", "2", 1, "Checkpoints that are kept."),
  };
}

Schema make_training_keys() {
  std::vector<Key> all;
  const auto add = [&](const char* group, std::vector<Key> keys) {
    for (Key& key : keys) {
      key.group = group;
      all.push_back(std::move(key));
    }
  };
  add("Model", model_keys());
  add("Data", data_keys());
  add("Batch", batch_keys());
  add("Length", length_keys());
  add("Optimizer", optimizer_keys());
  add("Memory", technique_keys());
  add("Memory", memory_keys());
  add("Device", device_keys());
  add("Results", result_keys());
  return {std::move(all), {"training"}, {"model"}};
}

}  // namespace

const Schema& training_keys() {
  static const Schema keys = make_training_keys();
  return keys;
}

}  // namespace headroom::config
