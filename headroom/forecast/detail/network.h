// Common parts of model descriptions: the run, linear layers with the effects of settings,
// attention kernels, losses, and sequences of layers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/forecast/detail/operators.h"
#include "headroom/forecast/detail/tape.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::forecast::detail {

// The sizes and choices of one run, all decided.
struct Situation {
  model::Task task = model::Task::causal_lm;
  std::int64_t rows = 1, length = 1, target = 1, image = 224;
  [[nodiscard]] std::int64_t tokens() const { return rows * length; }
  Type type = Type::float32;          // of weights and activations
  std::optional<Type> low = {};       // autocast's type
  bool trains = true, eager = false;  // eager: attention in separate operations
  bool newest = true;                 // as transformers 5 computes, not 4.57
  bool has_mask = true, keeps_cache = false, holds_outputs = false;
  int chip = 80;  // compute capability: the available attention kernels and their sizes
};

class Network {
 public:
  Network(const model::ModelConfig& model, const model::Settings& run, const Situation& decided,
          Tape::Options options)
      : config(model), settings(run), situation(decided), tape(std::move(options)) {}

  const model::ModelConfig& config;
  const model::Settings& settings;
  const Situation situation;
  Tape tape;
  struct Module {
    std::string name;
    std::int64_t layers = 0;  // the number of its layers; 0: it is not a list of layers
    std::int64_t activations = 0;
    std::vector<int> kinds = {};  // of the layers that have run in it
  };
  std::vector<Module> modules;  // indexed by Parameter::module
  std::int64_t buffer_bytes = 0;
  std::vector<Value> held;   // in the loop's variables until the forward pass ends, or longer
  std::vector<Value> cache;  // keys and values

  // ---- Parameters ----

  // The parameters that follow belong to this module, and to the backbone or a head.
  void begin_module(std::string name, bool head = false);
  void end_module();
  [[nodiscard]] Parameter& weight(std::int64_t rows, std::int64_t columns);
  // The table of tokens. A tied head trains it even if the backbone is frozen.
  [[nodiscard]] Parameter& token_table(std::int64_t rows, std::int64_t columns);
  [[nodiscard]] Parameter& vector(std::int64_t columns) { return weight(1, columns); }

  // ---- Layers ----

  // `path`: the layer's name on the hub without its number; LoRA targets are matched against it.
  struct LinearOptions {
    bool with_bias = true;
    bool is_head = false;  // never quantised, never adapted
  };
  [[nodiscard]] Value linear(const Value& x, std::int64_t in, std::int64_t out,
                             std::string_view path, const LinearOptions& options);
  [[nodiscard]] Value linear(const Value& x, std::int64_t in, std::int64_t out,
                             std::string_view path) {
    return linear(x, in, out, path, LinearOptions());
  }
  // Uses the weight of another layer.
  [[nodiscard]] Value tied_linear(const Value& x, Parameter& weight, Parameter* bias);
  // Each row times one of several matrices that are one tensor.
  [[nodiscard]] Value grouped(const Value& x, std::int64_t in, std::int64_t out,
                              std::int64_t matrices);
  [[nodiscard]] Value embedding(Parameter& table, std::int64_t indices);
  [[nodiscard]] Value layer_norm(const Value& x, std::int64_t width, bool affine = true);
  [[nodiscard]] Value rms_norm(const Value& x, std::int64_t width);         // Llama's
  [[nodiscard]] Value offset_rms_norm(const Value& x, std::int64_t width);  // Gemma's
  [[nodiscard]] Value t5_norm(const Value& x, std::int64_t width);
  [[nodiscard]] Value dropout(const Value& x, double share);
  [[nodiscard]] Value softmax_in_float(const Value& x);

  // Runs one layer for each of `kinds`; equal layers are counted once.
  using Layer = std::function<Value(int kind, const Value& states)>;
  [[nodiscard]] Value layers(const std::vector<int>& kinds, const Layer& layer, Value states,
                             std::string_view name = "layers");
  [[nodiscard]] Value layers(std::int64_t count, const std::function<Value(const Value&)>& layer,
                             Value states, std::string_view name = "layers");
  // Some of a model's layers, in a module that has begun; `first`: the number of the first one.
  [[nodiscard]] Value run_layers(const std::vector<int>& kinds, const Layer& layer, Value states,
                                 std::int64_t first);

  // ---- Attention ----

  struct Heads {
    std::int64_t heads, key_heads, width;
    std::int64_t queries = 0, keys = 0;  // tokens; 0: the situation's length
    std::optional<std::int64_t> groups = {};
    double dropout = 0;
    double softcap = 0;
    bool causal = true;
  };
  // Masks as transformers makes them, [1 or batch, 1, queries, keys]; empty if none is needed.
  [[nodiscard]] Value causal_mask(std::optional<std::int64_t> window, Type type, bool eager);
  [[nodiscard]] Value additive_causal_mask(Type type, bool eager, bool given);
  // Queries, keys and values are [batch, heads, tokens, width]; the result is laid out by token.
  [[nodiscard]] Value attend(const Value& q, const Value& k, const Value& v, const Value& mask,
                             const Heads& heads, Value* weights);
  [[nodiscard]] Value sdpa(const Value& q, const Value& k, const Value& v, const Value& mask,
                           const Heads& heads);
  [[nodiscard]] Value eager(const Value& q, const Value& k, const Value& v, const Value& mask,
                            const Heads& heads, Value* weights);
  [[nodiscard]] Value matmul(const Value& a, const Value& b, std::int64_t count,
                             std::int64_t heads);
  [[nodiscard]] Value heads_of(Value projected) const;  // views [batch, tokens, ...] by head
  void keep(Value& keys, Value& values);                // adds them to the cache, if one is kept

  // cos and sin of the positions, and the rotation of states by them.
  struct Rotation {
    Value cos, sin;
  };
  [[nodiscard]] Rotation rotation(std::int64_t width, Type type);
  [[nodiscard]] Value rotated(const Value& states, const Rotation& by);

  // ---- Losses; `head` computes logits from states ----

  // A head over a vocabulary: layers of its own, the projection, and what comes behind it.
  struct TokenHead {
    std::function<Value(const Value& states)> inner = {};  // may be empty
    std::function<Parameter&()> weight;                    // called after `inner`
    Parameter* bias = nullptr;
    std::function<Value(const Value& product)> after = {};  // may be empty
  };
  [[nodiscard]] Value token_loss(const TokenHead& head, const Value& states, std::int64_t width,
                                 std::int64_t vocabulary, bool in_float);
  [[nodiscard]] Value classification_loss(const Value& logits);
  [[nodiscard]] Value last_tokens(const Value& logits);

  // LoRA targets that have matched no layer so far.
  [[nodiscard]] std::vector<std::string> targets_not_met() const;

 private:
  [[nodiscard]] Value lowered(const Value& x);
  [[nodiscard]] Value lowered(Parameter& parameter);
  void quantise(Parameter& matrix) const;
  [[nodiscard]] bool is_target(std::string_view path);
  [[nodiscard]] Value multiplied(const Value& x, Parameter& weight, Parameter* bias,
                                 std::int64_t in, std::int64_t out);
  [[nodiscard]] Value with_adapter(const Value& x, Value result, std::int64_t in, std::int64_t out);
  [[nodiscard]] Value repeated(const Value& states, std::int64_t times);
  [[nodiscard]] Value by_flash(const Value& q, const Value& k, const Value& v, const Heads& heads);
  [[nodiscard]] Value by_efficient(const Value& q, const Value& k, const Value& v,
                                   const Value& mask, const Heads& heads);
  [[nodiscard]] Value by_math(const Value& q, const Value& k, const Value& v, const Value& mask,
                              const Heads& heads);
  [[nodiscard]] Value logits(const TokenHead& head, const Value& states);
  [[nodiscard]] Value chunked_loss(const TokenHead& head, const Value& states, std::int64_t width,
                                   bool in_float);
  [[nodiscard]] Value fused_loss(const TokenHead& head, const Value& states, std::int64_t width,
                                 std::int64_t vocabulary);
  std::set<std::string> targets_met_;
  bool backbone_ = true;
  std::int64_t activations_before_ = 0;
};

}  // namespace headroom::forecast::detail
