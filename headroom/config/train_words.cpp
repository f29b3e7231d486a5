#include "headroom/config/train_words.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::config {
namespace {

using Words = std::vector<std::string>;

// An option's value as the settings' JSON has it.
std::string value_of(const Json& settings, std::string option) {
  option = option.substr(2);
  std::replace(option.begin(), option.end(), '-', '_');
  const Json& value = settings.at(option);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return join(value.get<std::vector<std::string>>(), ",");
  return to_line(value);
}

Words word(const char* key, const std::string& value) {
  return {std::string(key) + "=" + value};
}

Words checkpointing(const std::string& value) {
  return word("gradient_checkpointing", value == "none"   ? "false"
                                        : value == "full" ? "true"
                                                          : value);
}
Words autocast(const std::string& value) {
  return value == "none" ? Words{"bf16=false", "fp16=false"} : word(value.c_str(), "true");
}

const std::map<std::string, std::function<Words(const std::string&)>>& keys() {
  static const auto same = [](const char* key) {
    return [key](const std::string& value) { return word(key, value); };
  };
  static const std::map<std::string, std::function<Words(const std::string&)>> all{
      {"--seq", same("seq")},
      {"--image", same("image")},
      {"--dtype", same("dtype")},
      {"--autocast", autocast},
      {"--optimizer", same("optimizer")},
      {"--rounding", same("rounding")},
      {"--attention", same("attention")},
      {"--checkpointing", checkpointing},
      {"--clip", same("max_grad_norm")},
      {"--loss", same("loss")},
      {"--offload", same("offload")},
      {"--quantize", same("quantize")},
      {"--lora-rank",
       [](const std::string& value) {
         return Words{"model=lora", "model.lora_r=" + value};
       }},
      {"--lora-targets", same("model.lora_targets")},
      {"--freeze-backbone", [](const std::string&) { return Words{"model=linear_probe"}; }},
  };
  return all;
}

}  // namespace

std::vector<std::string> options_with_keys() {
  std::vector<std::string> options{"--batch"};
  for (const auto& [option, words] : keys()) options.push_back(option);
  return options;
}

std::vector<std::string> train_words(const model::Settings& settings,
                                     const std::vector<std::string>& given) {
  const Json json = model::to_json(settings);
  Words words;
  for (const std::string& option : given) {
    if (option == "--batch" || option == "--accumulation") continue;
    const auto key = keys().find(option);
    if (key == keys().end())
      throw UsageError(option, "headroom train has no key for it; leave it out");
    for (std::string& one : key->second(value_of(json, option))) words.push_back(std::move(one));
  }
  return words;
}

}  // namespace headroom::config
