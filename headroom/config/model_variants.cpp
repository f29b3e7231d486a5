#include "headroom/config/model_variants.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/amount.h"
#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::config {
namespace {

constexpr const char* kExample = "[{min_total: 40GiB, model: vit-large}, {model: vit-base}]";

[[noreturn]] void refuse_variant(std::string_view expected, const std::string& received) {
  throw UsageError(expectation("config", expected, received, kExample));
}

void set_field(ModelVariant& variant, const std::string& key, const std::string& text) {
  const std::vector<std::string> known{"min_total", "model", "batch_size"};
  if (key == "model") {
    variant.model = trim(text);
  } else if (key == "min_total") {
    variant.min_total = text == "0" ? Bytes{} : parse_amount(text, "config");
  } else if (key == "batch_size") {
    variant.batch_size = to_integer(text);
    if (variant.batch_size.value_or(0) < 1)
      throw UsageError(expectation("config", "a whole number of 1 or more", text, "16"));
  } else {
    throw UsageError(expectation("config", "one of min_total, model, batch_size in a variant",
                                 without_controls(key), nearest(key, known).value_or(kExample)));
  }
}

ModelVariant variant_from(const Json& fields) {
  if (!fields.is_object()) refuse_variant("a variant with its model", to_line(fields));
  ModelVariant variant;
  for (const auto& [key, value] : fields.items()) {
    if (!value.is_string()) refuse_variant("one value for " + key, to_line(value));
    set_field(variant, key, value.get<std::string>());
  }
  if (variant.model.empty()) refuse_variant("a variant with its model", to_line(fields));
  return variant;
}

}  // namespace

std::vector<ModelVariant> model_variants_from(const Json& list) {
  if (!list.is_array()) refuse_variant("a list of variants", to_line(list));
  std::vector<ModelVariant> variants;
  for (const Json& fields : list) {
    const ModelVariant variant = variant_from(fields);
    const bool is_double = std::any_of(
        variants.begin(), variants.end(),
        [&](const ModelVariant& earlier) { return earlier.min_total == variant.min_total; });
    if (is_double) refuse_variant("variants that differ in min_total", to_line(list));
    variants.push_back(variant);
  }
  return variants;
}

}  // namespace headroom::config
