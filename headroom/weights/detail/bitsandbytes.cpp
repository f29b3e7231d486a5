#include "headroom/weights/detail/bitsandbytes.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"

namespace headroom::weights::detail {
namespace {

constexpr std::string_view kWeight = "weight", kScb = "SCB", kFormat = "weight_format";

std::string beside(const std::string& weight, std::string_view name) {
  return weight.ends_with(kWeight)
             ? weight.substr(0, weight.size() - kWeight.size()) + std::string(name)
             : weight + "." + std::string(name);
}

[[noreturn]] void refuse(const std::string& source, const std::string& expected,
                         const std::string& received) {
  throw InputError(expectation("load", expected + " for " + source, received,
                               "the checkpoint that it was made from, and quantise that"));
}

void check(const Json& state, const char* key, const Json& expected, const std::string& source) {
  if (const Json found = state.value(key, Json()); found != expected)
    refuse(source, std::string(key) + " " + expected.dump(), found.dump());
}

// And so few that they can be counted.
bool has_numbers(const std::vector<std::int64_t>& shape) {
  std::int64_t numbers = 1;
  for (const std::int64_t size : shape)
    if (size <= 0 || __builtin_mul_overflow(numbers, size, &numbers)) return false;
  return shape.size() >= 2;
}

}  // namespace

std::string scb_of(const std::string& weight) {
  return beside(weight, kScb);
}

std::string format_of(const std::string& weight) {
  return beside(weight, kFormat);
}

std::vector<std::string> described_by(const std::string& name) {
  const auto before = [&](std::string_view end) {
    return name.substr(0, name.size() - end.size());
  };
  for (const char* const end :
       {kNestedAbsmax, kNestedQuantMap, kAbsmax, kQuantMap, kNf4State, kFp4State, kTransposed})
    if (name.ends_with(end)) return {before(end)};
  for (const std::string_view end : {kScb, kFormat})
    if (name == end)
      return {std::string(kWeight)};
    else if (name.ends_with("." + std::string(end)))
      return {before(end) + std::string(kWeight), before(end).substr(0, before(end).size() - 1)};
  return {};
}

std::string to_json(const Nf4State& state) {
  Json json{{"quant_type", "nf4"},
            {"blocksize", kNf4Block},
            {"dtype", state.type},
            {"shape", state.shape}};
  if (state.is_nested) {
    json["nested_blocksize"] = kNestedBlock;
    json["nested_dtype"] = "float32";
    json["nested_offset"] = state.offset;
  }
  return json.dump();
}

Nf4State nf4_state_from(std::string_view text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse(source, "an object of JSON", "something else");
  check(json, "quant_type", "nf4", source);
  check(json, "blocksize", kNf4Block, source);
  Nf4State state{.type = {}, .shape = {}};
  try {
    state.type = json.at("dtype").get<std::string>();
    state.shape = json.at("shape").get<std::vector<std::int64_t>>();
    state.is_nested = json.contains("nested_offset");
    if (state.is_nested) state.offset = json.at("nested_offset").get<double>();
  } catch (const nlohmann::json::exception&) {
    refuse(source, "dtype and shape", json.dump());
  }
  if (!has_numbers(state.shape)) refuse(source, "a shape with numbers in it", json["shape"].dump());
  if (state.is_nested) check(json, "nested_blocksize", kNestedBlock, source);
  return state;
}

}  // namespace headroom::weights::detail
