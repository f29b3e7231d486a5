// The words for the choices of run_settings.h.
#include <array>
#include <type_traits>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/model/detail/refuse.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {
namespace {

template <typename Choice>
struct Words;  // `what`: the kind of choice; `all`: its words in order of the enum

#define HEADROOM_WORDS(Choice, text, ...)                                     \
  template <>                                                                 \
  struct Words<Choice> {                                                      \
    static constexpr std::string_view what = text;                            \
    static constexpr auto all = std::to_array<std::string_view>(__VA_ARGS__); \
  }

HEADROOM_WORDS(Task, "a task",
               {"causal-lm", "masked-lm", "sequence-classification", "image-classification",
                "seq2seq-lm"});
HEADROOM_WORDS(Dtype, "a type of numbers", {"float32", "bfloat16", "float16"});
HEADROOM_WORDS(Autocast, "an autocast type", {"none", "bf16", "fp16"});
HEADROOM_WORDS(Optimizer, "an optimizer",
               {"adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adafactor-hf", "adamw8bit",
                "adamw4bit", "none"});
HEADROOM_WORDS(OptimizerForm, "a form of an optimizer", {"fused", "foreach", "loop"});
HEADROOM_WORDS(Rounding, "a rounding", {"nearest", "stochastic"});
HEADROOM_WORDS(LoraDtype, "a type of adapters", {"float32", "weights"});
HEADROOM_WORDS(Attention, "a kind of attention", {"sdpa", "eager"});
HEADROOM_WORDS(Transformers, "a version of transformers", {"4.57", "5"});
HEADROOM_WORDS(Mask, "a mask", {"ones", "none"});
HEADROOM_WORDS(CheckpointingKind, "a kind of checkpointing", {"nonreentrant", "reentrant"});
HEADROOM_WORDS(Quantize, "a quantisation", {"none", "8bit", "4bit"});
HEADROOM_WORDS(Mode, "a mode", {"train", "inference", "generate"});
HEADROOM_WORDS(Policy, "a policy", {"exact", "size-table", "strategy", "simple", "variant"});
HEADROOM_WORDS(OffloadTo, "a place to offload to", {"host", "disk"});
#undef HEADROOM_WORDS

// Accepts "bf16" as a dtype, too, and "bfloat16" as an autocast type.
template <typename Choice>
std::string_view usual_word(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTypes{
      {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}}};
  for (const auto& [brief, whole] : kTypes) {
    if (std::is_same_v<Choice, Dtype> && word == brief) return whole;
    if (std::is_same_v<Choice, Autocast> && word == whole) return brief;
  }
  return word;
}

}  // namespace

void detail::refuse(std::string_view what, std::string_view word,
                    const std::vector<std::string>& choices) {
  const std::optional<std::string> near = nearest(word, choices);
  throw UsageError(expectation("settings", std::string(what) + ": " + join(choices, ", "), word,
                               near ? *near : choices.front()));
}

template <typename Choice>
const std::vector<std::string>& choices() {
  static const std::vector<std::string> all(Words<Choice>::all.begin(), Words<Choice>::all.end());
  return all;
}

template <typename Choice>
Choice choice(std::string_view given) {
  const std::string_view word = usual_word<Choice>(given);
  for (std::size_t i = 0; i < Words<Choice>::all.size(); ++i)
    if (Words<Choice>::all[i] == word) return static_cast<Choice>(i);
  detail::refuse(Words<Choice>::what, given, choices<Choice>());
}

template <typename Choice>
std::string_view to_string(Choice choice) {
  return Words<Choice>::all.at(static_cast<std::size_t>(choice));
}

#define HEADROOM_INSTANTIATE(Choice)                          \
  template const std::vector<std::string>& choices<Choice>(); \
  template Choice choice<Choice>(std::string_view);           \
  template std::string_view to_string<Choice>(Choice)
HEADROOM_INSTANTIATE(Task);
HEADROOM_INSTANTIATE(Dtype);
HEADROOM_INSTANTIATE(Autocast);
HEADROOM_INSTANTIATE(Optimizer);
HEADROOM_INSTANTIATE(OptimizerForm);
HEADROOM_INSTANTIATE(Rounding);
HEADROOM_INSTANTIATE(LoraDtype);
HEADROOM_INSTANTIATE(Attention);
HEADROOM_INSTANTIATE(Transformers);
HEADROOM_INSTANTIATE(Mask);
HEADROOM_INSTANTIATE(CheckpointingKind);
HEADROOM_INSTANTIATE(Quantize);
HEADROOM_INSTANTIATE(Mode);
HEADROOM_INSTANTIATE(Policy);
HEADROOM_INSTANTIATE(OffloadTo);
#undef HEADROOM_INSTANTIATE

}  // namespace headroom::model
