// Llama, Mistral, Qwen2 and Qwen3 (modeling_llama.py, modeling_mistral.py, modeling_qwen2.py and
// modeling_qwen3.py of transformers 4.57.6): one decoder with four small differences.
#include <algorithm>

#include "headroom/models/families/decoder.h"

namespace headroom::models::detail {
namespace llama {
namespace {

using decoder::GatedMlp;
using decoder::Plan;
using decoder::Shape;
using model::ModelConfig;
using Layer = decoder::PlainLayer<nn::RmsNorm, decoder::SelfAttention, GatedMlp>;

bool flag_if_known(const ModelConfig& config, const char* key) {
  return config.has(key) && config.flag(key);
}

// Mistral: all layers, if there is a window. Qwen, if the window is enabled: the layers that
// `layer_types` names, else those from `max_window_layers` on.
void set_windows(Shape& shape, const ModelConfig& config) {
  if (config.type() == "mistral") {
    shape.window = config.optional_count("sliding_window");
    shape.windowed.assign(shape.windowed.size(), shape.window.has_value());
  }
  if (!config.has("layer_types")) return;
  if (config.flag("use_sliding_window")) shape.window = config.optional_count("sliding_window");
  if (const auto said = decoder::windows_by_layer(config)) {
    shape.windowed = *said;
    if (!shape.window && std::find(said->begin(), said->end(), true) != said->end())
      config.refuse("layer_types",
                    "no sliding_attention without use_sliding_window and a sliding_window");
    return;
  }
  const auto first = static_cast<std::size_t>(config.count("max_window_layers"));
  for (std::size_t i = first; i < shape.windowed.size(); ++i)
    shape.windowed[i] = shape.window.has_value();
}

Plan plan(const ModelConfig& config) {
  Shape shape(config);
  shape.qkv_bias = config.type() == "qwen2" || flag_if_known(config, "attention_bias");
  shape.out_bias = flag_if_known(config, "attention_bias");
  shape.mlp_bias = flag_if_known(config, "mlp_bias");
  shape.normalised_heads = config.type() == "qwen3";
  set_windows(shape, config);
  const nn::Activation function = activation(config, "hidden_act");
  const auto layer = [shape, function] {
    return std::make_shared<Layer>(shape,
                                   [&] { return std::make_shared<GatedMlp>(shape, function); });
  };
  return {.shape = shape,
          .layer = layer,
          .norm = decoder::norm_like<nn::RmsNorm>(shape),
          .always_full_mask = config.has("layer_types")};
}

}  // namespace
}  // namespace llama

Build llama_family() {
  return decoder::family(llama::plan);
}

}  // namespace headroom::models::detail
