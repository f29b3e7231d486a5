#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "headroom/model/shapes.h"

namespace headroom::model {
namespace {

// The size of a head, if heads divide the width without a rest.
std::int64_t whole_head(const ModelConfig& config, std::int64_t width, std::int64_t heads,
                        std::string_view heads_key, const std::string& width_key) {
  if (width % heads != 0) config.refuse(heads_key, "a divisor of " + width_key);
  return width / heads;
}

std::int64_t key_heads_of(const ModelConfig& config, std::int64_t heads) {
  const std::int64_t key_heads = config.optional_count("num_key_value_heads").value_or(heads);
  if (key_heads < 1 || heads % key_heads != 0)
    config.refuse("num_key_value_heads", "a divisor of num_attention_heads");
  return key_heads;
}

// The rotated part of a head.
std::int64_t rotated(const ModelConfig& config, std::int64_t head_width, std::string_view key) {
  return static_cast<std::int64_t>(static_cast<double>(head_width) * config.number(key));
}

Rope rope_of_part(const ModelConfig& config, std::int64_t head_width, std::string_view key) {
  const std::int64_t width = rotated(config, head_width, key);
  if (width < 2 || width % 2 != 0 || width > head_width)
    config.refuse(key, "a share that makes an even part of a head");
  return {config, width};
}

// ---- Llama ----

bool flag_if_known(const ModelConfig& config, std::string_view key) {
  return config.has(key) && config.flag(key);
}

double cap(const ModelConfig& config, std::string_view key) {
  if (!config.has(key) || config.is_null(key)) return 0;
  if (config.number(key) == 0) config.refuse(key, "a number other than 0, or null");
  return config.number(key);
}

// Reads `layer_types`; std::nullopt if the config has none.
std::optional<std::vector<bool>> windows_by_layer(const ModelConfig& config) {
  if (config.is_null("layer_types")) return {};
  std::vector<bool> windowed;
  for (const std::string& type : config.texts("layer_types")) {
    if (type != "full_attention" && type != "sliding_attention")
      config.refuse("layer_types", "a list of full_attention and sliding_attention");
    windowed.push_back(type == "sliding_attention");
  }
  if (windowed.size() != static_cast<std::size_t>(config.count("num_hidden_layers")))
    config.refuse("layer_types", "one type for each of num_hidden_layers");
  return windowed;
}

// Mistral, Phi-3 and Mixtral: all layers, if there is a window. Gemma-2: every second layer, unless
// `layer_types` says otherwise. Qwen, if the window is enabled: the layers that `layer_types`
// names, else those from `max_window_layers` on.
void set_windows(LlamaShape& shape, const ModelConfig& config) {
  const std::string& type = config.type();
  if (type == "mistral" || type == "phi3" || type == "mixtral") {
    shape.window = config.optional_count("sliding_window");
    shape.windowed.assign(shape.windowed.size(), shape.window.has_value());
  }
  if (type == "gemma2") {
    shape.window = config.at_least_1("sliding_window");
    for (std::size_t i = 0; i < shape.windowed.size(); i += 2) shape.windowed[i] = true;
  }
  if (!config.has("layer_types")) return;
  if (flag_if_known(config, "use_sliding_window"))
    shape.window = config.optional_count("sliding_window");
  if (const auto said = windows_by_layer(config)) {
    shape.windowed = *said;
    if (!shape.window && std::find(said->begin(), said->end(), true) != said->end())
      config.refuse("layer_types",
                    "no sliding_attention without use_sliding_window and a sliding_window");
  } else if (type != "gemma2") {
    const auto first = static_cast<std::size_t>(config.count("max_window_layers"));
    for (std::size_t i = first; i < shape.windowed.size(); ++i)
      shape.windowed[i] = shape.window.has_value();
  }
}

Rope rope_of(const LlamaShape& shape, const ModelConfig& config) {
  if (config.type() != "phi3") return {config, shape.head_width};
  const std::int64_t width = rotated(config, shape.head_width, "partial_rotary_factor");
  if (width > shape.head_width) config.refuse("partial_rotary_factor", "a share of at most 1");
  return {config, width};
}

// ---- GPT-Neo ----

[[noreturn]] void refuse_types(const ModelConfig& config) {
  config.refuse("attention_types",
                "a list as [[[\"global\", \"local\"], 12]] that names each of `num_layers` layers");
}

// Reads which layers see a window: [[["global", "local"], 12]] alternates both, twelve times.
std::vector<bool> windowed_layers(const ModelConfig& config) {
  std::vector<bool> windowed;
  const Json& types = config.at("attention_types");
  const auto most = static_cast<std::size_t>(config.at_least_1("num_layers"));
  if (!types.is_array()) refuse_types(config);
  for (const Json& item : types) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_array() ||
        !item[1].is_number_unsigned())
      refuse_types(config);
    for (std::size_t i = 0; i < item[1] && windowed.size() <= most; ++i)
      for (const Json& kind : item[0]) {
        if (kind != "global" && kind != "local") refuse_types(config);
        windowed.push_back(kind == "local");
      }
  }
  if (windowed.size() != most) refuse_types(config);
  return windowed;
}

}  // namespace

LlamaShape::LlamaShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      key_heads(key_heads_of(config, heads)),
      head_width(width / heads),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      padding(padding_row(config, vocabulary)),
      epsilon(config.number("rms_norm_eps")),
      attention_dropout(config.number("attention_dropout")),
      softcap(cap(config, "attn_logit_softcapping")),
      logit_cap(cap(config, "final_logit_softcapping")),
      normalised_heads(config.type() == "qwen3"),
      windowed(static_cast<std::size_t>(layers)),
      always_full_mask(config.has("layer_types")) {
  const std::string& type = config.type();
  if (config.has("head_dim")) head_width = config.optional_count("head_dim").value_or(head_width);
  if (head_width < 1) config.refuse("num_attention_heads", "at most hidden_size");
  scaling = std::pow(
      type == "gemma2" ? config.number("query_pre_attn_scalar") : static_cast<double>(head_width),
      -0.5);
  if (type == "phi3") {
    residual_dropout = config.number("resid_pdrop");
  } else if (type == "mixtral") {
    experts = config.at_least_1("num_local_experts");
    experts_each = config.at_least_1("num_experts_per_tok");
    router_jitter = config.number("router_jitter_noise");
    routing_loss = config.number("router_aux_loss_coef");
    collects_routes = config.flag("output_router_logits");
    if (experts_each > experts) config.refuse("num_experts_per_tok", "at most num_local_experts");
  } else {
    out_bias = flag_if_known(config, "attention_bias");
    qkv_bias = out_bias || type == "qwen2";
    mlp_bias = flag_if_known(config, "mlp_bias");
  }
  set_windows(*this, config);
  function = activation_name(config, type == "gemma2" ? "hidden_activation" : "hidden_act");
  rope = rope_of(*this, config);
}

Gpt2Shape::Gpt2Shape(const ModelConfig& config)
    : width(config.at_least_1("n_embd")),
      heads(config.at_least_1("n_head")),
      inner(config.optional_count("n_inner").value_or(4 * width)),
      layers(config.at_least_1("n_layer")),
      positions(config.at_least_1("n_positions")),
      vocabulary(config.at_least_1("vocab_size")),
      epsilon(config.number("layer_norm_epsilon")),
      embedding_dropout(config.number("embd_pdrop")),
      attention_dropout(config.number("attn_pdrop")),
      residual_dropout(config.number("resid_pdrop")),
      scaled(config.flag("scale_attn_weights")),
      scaled_by_layer(config.flag("scale_attn_by_inverse_layer_idx")),
      upcast(config.flag("reorder_and_upcast_attn")),
      function(activation_name(config, "activation_function")) {
  (void)whole_head(config, width, heads, "n_head", "`n_embd`");
}

GptNeoShape::GptNeoShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_heads")),
      inner(config.optional_count("intermediate_size").value_or(4 * width)),
      layers(config.at_least_1("num_layers")),
      positions(config.at_least_1("max_position_embeddings")),
      window(config.at_least_1("window_size")),
      vocabulary(config.at_least_1("vocab_size")),
      windowed(windowed_layers(config)),
      epsilon(config.number("layer_norm_epsilon")),
      embedding_dropout(config.number("embed_dropout")),
      attention_dropout(config.number("attention_dropout")),
      residual_dropout(config.number("resid_dropout")),
      function(activation_name(config, "activation_function")) {
  (void)whole_head(config, width, heads, "num_heads", "`hidden_size`");
}

GptNeoXShape::GptNeoXShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      head_width(whole_head(config, width, heads, "num_attention_heads", "`hidden_size`")),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      epsilon(config.number("layer_norm_eps")),
      hidden_dropout(config.number("hidden_dropout")),
      attention_dropout(config.number("attention_dropout")),
      with_bias(config.flag("attention_bias")),
      parallel(config.flag("use_parallel_residual")),
      function(activation_name(config, "hidden_act")),
      rope(rope_of_part(config, head_width, "rotary_pct")) {}

OptShape::OptShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      token_width(config.optional_count("word_embed_proj_dim").value_or(width)),
      heads(config.at_least_1("num_attention_heads")),
      inner(config.at_least_1("ffn_dim")),
      layers(config.at_least_1("num_hidden_layers")),
      positions(config.at_least_1("max_position_embeddings")),
      vocabulary(config.at_least_1("vocab_size")),
      padding(padding_row(config, vocabulary)),
      hidden_dropout(config.number("dropout")),
      attention_dropout(config.number("attention_dropout")),
      norm_first(config.flag("do_layer_norm_before")),
      norm_at_end(norm_first && !config.flag("_remove_final_layer_norm")),
      with_bias(config.flag("enable_bias")),
      affine(config.flag("layer_norm_elementwise_affine")),
      function(activation_name(config, "activation_function")) {
  (void)whole_head(config, width, heads, "num_attention_heads", "`hidden_size`");
  if (config.number("layerdrop") != 0)
    config.refuse("layerdrop", "0, since Headroom runs each layer in each step,");
}

PhiShape::PhiShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      key_heads(key_heads_of(config, heads)),
      head_width(width / heads),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      padding(padding_row(config, vocabulary)),
      epsilon(config.number("layer_norm_eps")),
      embedding_dropout(config.number("embd_pdrop")),
      attention_dropout(config.number("attention_dropout")),
      residual_dropout(config.number("resid_pdrop")),
      normalised_heads(config.flag("qk_layernorm")),
      function(activation_name(config, "hidden_act")) {
  if (head_width < 1) config.refuse("num_attention_heads", "at most hidden_size");
  rope = rope_of_part(config, head_width, "partial_rotary_factor");
}

}  // namespace headroom::model
