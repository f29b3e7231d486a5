// Linear layers with the effects of settings: autocast copies, adapters, quantised weights.
#include <algorithm>
#include <iterator>

#include "headroom/forecast/detail/network.h"

namespace headroom::forecast::detail {

namespace {

// The names of attention's projections in the models of transformers, by the words of nn/lora.h.
struct Word {
  std::string_view word;
  std::vector<std::string_view> names;
};
const std::vector<Word>& words() {
  static const std::vector<Word> all = {
      {"q", {"q", "q_proj", "query", "q_lin", "c_attn", "query_key_value", "qkv_proj"}},
      {"k", {"k", "k_proj", "key", "k_lin", "c_attn", "query_key_value", "qkv_proj"}},
      {"v", {"v", "v_proj", "value", "v_lin", "c_attn", "query_key_value", "qkv_proj"}},
      {"o",
       {"o", "o_proj", "out_proj", "out_lin", "attn.c_proj", "attention.dense",
        "attention.output.dense", "self_attn.dense"}}};
  return all;
}

bool ends_with_name(std::string_view path, std::string_view name) {
  if (!path.ends_with(name)) return false;
  return path.size() == name.size() || path[path.size() - name.size() - 1] == '.';
}

// '*' matches any text, '?' one character.
bool fits(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (std::size_t i = 0; i <= text.size(); ++i)
      if (fits(pattern.substr(1), text.substr(i))) return true;
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         fits(pattern.substr(1), text.substr(1));
}

bool matches(std::string_view path, const std::string& pattern) {
  if (pattern == "all-linear") return true;
  if (pattern.find_first_of("*?") != std::string::npos) return fits("*" + pattern, path);
  for (const Word& word : words())
    if (word.word == pattern)
      return std::any_of(word.names.begin(), word.names.end(),
                         [&](std::string_view name) { return ends_with_name(path, name); });
  return ends_with_name(path, pattern);
}

const std::vector<std::string>& targets_of(const model::Settings& settings) {
  static const std::vector<std::string> usual = {"q", "v"};
  return settings.lora_targets.empty() ? usual : settings.lora_targets;
}

}  // namespace

bool Network::is_target(std::string_view path) {
  bool met = false;
  for (const std::string& target : targets_of(settings)) {
    if (!matches(path, target)) continue;
    targets_met_.insert(target);
    met = true;
  }
  return met;
}

std::vector<std::string> Network::targets_not_met() const {
  std::vector<std::string> names;
  if (settings.lora_rank > 0)
    std::copy_if(targets_of(settings).begin(), targets_of(settings).end(),
                 std::back_inserter(names),
                 [&](const std::string& target) { return targets_met_.count(target) == 0; });
  return names;
}

// Autocast's copies. A trained weight keeps one copy until autocast ends.
Value Network::lowered(const Value& x) {
  return situation.low && x.type == Type::float32 ? cast(tape, x, *situation.low) : x;
}

Value Network::lowered(Parameter& parameter) {
  if (!situation.low || parameter.type != Type::float32) return tape.use(parameter);
  if (parameter.low) return parameter.low;
  Value low = cast(tape, tape.use(parameter), *situation.low);
  if (parameter.trained || !situation.trains) parameter.low = low;
  return low;
}

// Numbers of a quantised weight that are unpacked at a time (nn/detail/packed_weight.cpp).
constexpr std::int64_t kTile = std::int64_t{1} << 22;

Value Network::multiplied(const Value& x, Parameter& weight, Parameter* bias, std::int64_t in,
                          std::int64_t out) {
  const Value input = lowered(x);
  if (weight.bytes_each > 0) tape.touch(std::min(in * out, kTile) * size_of(input.type));
  const Value matrix = lowered(weight);
  const Value shift = bias != nullptr ? lowered(*bias) : Value();
  return product(tape, input, matrix, shift, in, out);
}

// bitsandbytes: 8-bit weights have one scale per row; 4-bit weights take 4.127 bits each, with
// doubly quantised scales (Dettmers et al. 2023, section 3).
void Network::quantise(Parameter& matrix) const {
  if (settings.quantize == model::Quantize::none || !backbone_) return;
  matrix.bytes_each = settings.quantize == model::Quantize::int8
                          ? 1 + 4 / static_cast<double>(std::max<std::int64_t>(matrix.columns, 1))
                          : 4.127 / 8;
  matrix.trained = false;
}

Value Network::linear(const Value& x, std::int64_t in, std::int64_t out, std::string_view path,
                      const LinearOptions& options) {
  Parameter& matrix = weight(out, in);
  Parameter* const bias = options.with_bias ? &vector(out) : nullptr;
  if (!options.is_head) quantise(matrix);
  Value result = multiplied(x, matrix, bias, in, out);
  if (settings.lora_rank > 0 && backbone_ && !options.is_head && is_target(path))
    return with_adapter(x, std::move(result), in, out);
  return result;
}

Value Network::with_adapter(const Value& x, Value result, std::int64_t in, std::int64_t out) {
  const std::int64_t rank = settings.lora_rank;
  const bool in_float = settings.lora_dtype == model::LoraDtype::float32;
  const Type own = in_float ? Type::float32 : situation.type;
  Parameter& a = tape.parameter(rank, in, own, situation.trains);
  Parameter& b = tape.parameter(out, rank, own, situation.trains);
  const Type type = result.type;
  const bool is_widened = x.type != a.type && !situation.low;
  const Value input = is_widened ? x : cast(tape, x, a.type);
  Value added = is_widened ? widened_product(tape, x, tape.use(a), in, rank)
                           : multiplied(input, a, nullptr, in, rank);
  added = multiplied(added, b, nullptr, rank, out);
  added = times_number(tape, added);
  result = plus(tape, result, added);
  added.reset();
  return cast(tape, result, type);
}

Value Network::tied_linear(const Value& x, Parameter& weight, Parameter* bias) {
  return multiplied(x, weight, bias, weight.columns, weight.rows);
}

// Autocast does not know this operator.
Value Network::grouped(const Value& x, std::int64_t in, std::int64_t out, std::int64_t matrices) {
  Parameter& weights = weight(matrices * out, in);
  quantise(weights);
  if (weights.bytes_each > 0) tape.touch(matrices * std::min(in * out, kTile) * size_of(x.type));
  return product(tape, cast(tape, x, weights.type), tape.use(weights), {}, in, out);
}

Value Network::embedding(Parameter& table, std::int64_t indices) {
  Value result = detail::embedding(tape, table, indices);
  // Adapters of checkpointed layers need an input with a gradient, and transformers 5 always makes
  // one.
  const bool needs = settings.checkpoint_every > 0 && situation.trains &&
                     (settings.lora_rank > 0 || (settings.freeze_backbone && situation.newest));
  if (needs && !result.has_gradient() && tape.records())
    tape.record(result, [](Tape&, Gradients&) {});
  return result;
}

}  // namespace headroom::forecast::detail
