#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/model/shapes.h"

namespace headroom::model {
namespace {

constexpr std::array<std::string_view, 16> kActivations{
    "gelu",       "gelu_10", "gelu_fast", "gelu_new",   "gelu_pytorch_tanh",
    "leaky_relu", "linear",  "mish",      "quick_gelu", "relu",
    "relu2",      "relu6",   "sigmoid",   "silu",       "swish",
    "tanh"};

void check_heads(const ModelConfig& config, std::int64_t width, std::int64_t heads,
                 std::string_view key, const char* width_key) {
  if (width % heads != 0) config.refuse(key, std::string("a divisor of ") + width_key);
}

// ---- Images ----

std::vector<std::int64_t> per_stage(const ModelConfig& config, std::string_view key,
                                    std::size_t stages) {
  std::vector<std::int64_t> numbers;
  for (const long long number : config.counts(key)) {
    if (number < 1) config.refuse(key, "numbers of at least 1");
    numbers.push_back(number);
  }
  if (numbers.empty() || numbers.size() != stages)
    config.refuse(key,
                  "one number for each of " + counted(static_cast<long long>(stages), "stage"));
  return numbers;
}

// The list of this key, or `otherwise` if the config omits it or has null.
std::vector<std::int64_t> stages_or(const ModelConfig& config, std::string_view key,
                                    std::vector<std::int64_t> otherwise) {
  const auto stages = static_cast<std::size_t>(config.at_least_1("num_stages"));
  if (!config.is_null(key)) return per_stage(config, key, stages);
  if (stages != otherwise.size()) config.refuse(key, "one number for each of num_stages stages");
  return otherwise;
}

std::int64_t token(const ModelConfig& config, std::string_view key, std::string_view expected) {
  const auto number = config.optional_count(key);
  if (!number) config.refuse(key, expected);
  return *number;
}

}  // namespace

bool is_activation(std::string_view name) {
  return std::find(kActivations.begin(), kActivations.end(), name) != kActivations.end();
}

std::string activation_name(const ModelConfig& config, std::string_view key) {
  std::string name = config.text(key);
  if (!is_activation(name))
    config.refuse(
        key, "one of the activations " +
                 join(std::vector<std::string>(kActivations.begin(), kActivations.end()), ", "));
  return name;
}

std::int64_t padding_row(const ModelConfig& config, std::int64_t rows) {
  const Json& said = config.at("pad_token_id");
  if (said.is_null()) return -1;
  if (!said.is_number_integer() || said < -rows || said >= rows)
    config.refuse("pad_token_id", "a token of the vocabulary, or null");
  const auto row = said.get<std::int64_t>();
  return row < 0 ? row + rows : row;
}

BertShape::BertShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      positions(config.at_least_1("max_position_embeddings")),
      segments(config.at_least_1("type_vocab_size")),
      padding(padding_row(config, vocabulary)),
      chunk(config.count("chunk_size_feed_forward")),
      epsilon(config.number("layer_norm_eps")),
      dropout(config.number("hidden_dropout_prob")),
      attention_dropout(config.number("attention_probs_dropout_prob")),
      decoder(config.flag("is_decoder")),
      roberta(config.type() == "roberta"),
      function(activation_name(config, "hidden_act")) {
  check_heads(config, width, heads, "num_attention_heads", "hidden_size");
  if (config.text("position_embedding_type") != "absolute")
    config.refuse("position_embedding_type", "`absolute`, the only kind that is built,");
  if (config.flag("add_cross_attention"))
    config.refuse("add_cross_attention", "false (no encoder stands beside this model)");
  // RoBERTa's positions start after the padding token's number, so it may not be negative.
  if (roberta && (!config.optional_count("pad_token_id") || padding >= positions))
    config.refuse("pad_token_id", "a whole number below max_position_embeddings");
}

DistilbertShape::DistilbertShape(const ModelConfig& config)
    : width(config.at_least_1("dim")),
      heads(config.at_least_1("n_heads")),
      inner(config.at_least_1("hidden_dim")),
      layers(config.at_least_1("n_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      positions(config.at_least_1("max_position_embeddings")),
      padding(padding_row(config, vocabulary)),
      chunk(config.count("chunk_size_feed_forward")),
      dropout(config.number("dropout")),
      attention_dropout(config.number("attention_dropout")),
      function(activation_name(config, "activation")) {
  check_heads(config, width, heads, "n_heads", "dim");
}

T5Shape::T5Shape(const ModelConfig& config)
    : width(config.at_least_1("d_model")),
      heads(config.at_least_1("num_heads")),
      head_width(config.at_least_1("d_kv")),
      inner(config.at_least_1("d_ff")),
      encoder_layers(config.at_least_1("num_layers")),
      decoder_layers(config.is_null("num_decoder_layers")
                         ? encoder_layers
                         : config.at_least_1("num_decoder_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      buckets(config.at_least_1("relative_attention_num_buckets")),
      farthest(config.at_least_1("relative_attention_max_distance")),
      start(token(config, "decoder_start_token_id", "a token (the decoder begins with it)")),
      padding(token(config, "pad_token_id", "a token")),
      epsilon(config.number("layer_norm_epsilon")),
      dropout(config.number("dropout_rate")),
      gated(config.text("feed_forward_proj").starts_with("gated-")),
      function(config.text("feed_forward_proj").substr(gated ? 6 : 0)) {
  if (gated && function == "gelu") function = "gelu_new";
  if (!is_activation(function))
    config.refuse("feed_forward_proj", "an activation, or one behind `gated-`,");
  if (buckets < 4) config.refuse("relative_attention_num_buckets", "at least 4");
  if (!config.flag("is_encoder_decoder")) config.refuse("is_encoder_decoder", "true");
}

VitShape::VitShape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      side(config.at_least_1("image_size")),
      patch(config.at_least_1("patch_size")),
      channels(config.at_least_1("num_channels")),
      extra(config.type() == "deit" ? 2 : 1),
      epsilon(config.number("layer_norm_eps")),
      dropout(config.number("hidden_dropout_prob")),
      attention_dropout(config.number("attention_probs_dropout_prob")),
      qkv_bias(config.flag("qkv_bias")),
      function(activation_name(config, "hidden_act")) {
  check_heads(config, width, heads, "num_attention_heads", "hidden_size");
  if (patch > side) config.refuse("patch_size", "at most image_size");
}

ResnetShape::ResnetShape(const ModelConfig& config)
    : channels(config.at_least_1("num_channels")),
      embedding(config.at_least_1("embedding_size")),
      depths(per_stage(config, "depths", config.counts("depths").size())),
      widths(per_stage(config, "hidden_sizes", depths.size())),
      bottleneck(config.text("layer_type") == "bottleneck"),
      downsample_in_first_stage(config.flag("downsample_in_first_stage")),
      downsample_in_bottleneck(config.flag("downsample_in_bottleneck")),
      function(activation_name(config, "hidden_act")) {
  if (!bottleneck && config.text("layer_type") != "basic")
    config.refuse("layer_type", "basic or bottleneck");
  for (const std::int64_t width : widths)
    if (bottleneck && width < 4) config.refuse("hidden_sizes", "at least 4 in a bottleneck");
}

ConvnextShape::ConvnextShape(const ModelConfig& config)
    : channels(config.at_least_1("num_channels")),
      patch(config.at_least_1("patch_size")),
      depths(stages_or(config, "depths", {3, 3, 9, 3})),
      widths(stages_or(config, "hidden_sizes", {96, 192, 384, 768})),
      epsilon(config.number("layer_norm_eps")),
      layer_scale(config.number("layer_scale_init_value")),
      drop_path(config.number("drop_path_rate")),
      function(activation_name(config, "hidden_act")) {
  if (drop_path < 0 || drop_path >= 1) config.refuse("drop_path_rate", "a share below 1");
}

}  // namespace headroom::model
