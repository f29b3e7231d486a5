#include "headroom/forecast/detail/architectures.h"

#include <array>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::forecast::detail {
namespace {

using Describe = Value (*)(Network&);
constexpr std::array<std::pair<std::string_view, Describe>, 21> kFamilies{{
    {"bert", bert},
    {"convnext", convnext},
    {"deit", vit},
    {"distilbert", distilbert},
    {"gemma", llama_like},
    {"gemma2", llama_like},
    {"gpt2", gpt2},
    {"gpt_neo", gpt_neo},
    {"gpt_neox", gpt_neox},
    {"llama", llama_like},
    {"mistral", llama_like},
    {"mixtral", llama_like},
    {"opt", opt},
    {"phi", phi},
    {"phi3", llama_like},
    {"qwen2", llama_like},
    {"qwen3", llama_like},
    {"resnet", resnet},
    {"roberta", bert},
    {"t5", t5},
    {"vit", vit},
}};

}  // namespace

Value described(Network& net) {
  for (const auto& [type, describe] : kFamilies)
    if (type == net.config.type()) return describe(net);
  throw InternalError("described", "no description of " + net.config.type());
}

}  // namespace headroom::forecast::detail
