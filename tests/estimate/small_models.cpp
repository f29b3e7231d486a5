#include "tests/estimate/small_models.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace headroom::estimate {
namespace {

const Json& catalogue() {
  static const Json models =
      Json::parse(std::ifstream(HEADROOM_SOURCE_DIR "/headroom/model/data/models.json"))
          .at("models");
  return models;
}

void cut(Json& config, const char* key, const Json& to) {
  if (config.contains(key) && !config.at(key).is_null()) config[key] = to;
}

// Four heads of eight; keys and values stay shared if they were.
void cut_heads(Json& config) {
  if (config.contains("num_key_value_heads") && !config.at("num_key_value_heads").is_null()) {
    const int heads = config.at("num_attention_heads").get<int>(),
              keys = config.at("num_key_value_heads").get<int>();
    config["num_key_value_heads"] = keys == heads ? 4 : keys == 1 ? 1 : 2;
  }
  for (const char* key : {"num_attention_heads", "n_head", "num_heads", "n_heads"})
    cut(config, key, 4);
  // Not the width over the heads where it was not.
  cut(config, "head_dim", 16);
  cut(config, "query_pre_attn_scalar", 16);
  cut(config, "d_kv", 8);
}

void cut_widths(Json& config) {
  // A projection between embedding and layers, where there is one.
  if (config.contains("word_embed_proj_dim"))
    config["word_embed_proj_dim"] =
        config.at("word_embed_proj_dim") == config.at("hidden_size") ? 32 : 16;
  for (const char* key : {"hidden_size", "n_embd", "d_model", "dim"}) cut(config, key, 32);
  for (const char* key : {"intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "n_inner"})
    cut(config, key, 64);
  cut(config, "vocab_size", 96);
  // Without one transformers classifies one row at a time.
  if (config.contains("vocab_size")) config["pad_token_id"] = 1;
  cut(config, "num_labels", 5);
  cut(config, "num_local_experts", 4);
}

void cut_layers_and_lengths(Json& config) {
  for (const char* key :
       {"num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers", "n_layers"})
    cut(config, key, 2);
  for (const char* key :
       {"max_position_embeddings", "n_positions", "original_max_position_embeddings"})
    cut(config, key, 64);
  for (const char* key : {"sliding_window", "window_size"}) cut(config, key, 8);
  cut(config, "max_window_layers", 2);
  if (config.contains("attention_types"))
    config["attention_types"] = Json::parse(R"([[["global", "local"], 1]])");
}

void cut_images(Json& config) {
  cut(config, "image_size", kSmallImage);
  if (!config.contains("depths")) {
    cut(config, "patch_size", 8);
    return;
  }
  config["depths"] = {1, 1, 2, 1};
  config["hidden_sizes"] = {8, 16, 24, 32};
  cut(config, "embedding_size", 8);
}

}  // namespace

model::NamedModel small(const std::string& name, const Json& more) {
  Json config = catalogue().at(name).at("config");
  cut_heads(config);
  cut_widths(config);
  cut_layers_and_lengths(config);
  cut_images(config);
  // Rotates a share of each head, which must be even.
  if (config.at("model_type") == "phi") config["hidden_size"] = 80;
  config.update(more);
  return {name, model::ModelConfig(config, "a small " + name), {}};
}

model::NamedModel small(const std::string& name) {
  return small(name, Json::object());
}

std::vector<std::string> one_of_each_type() {
  std::vector<std::string> names;
  std::set<std::string> types;
  for (const auto& [name, model] : catalogue().items())
    if (types.insert(model.at("config").at("model_type").get<std::string>()).second)
      names.push_back(name);
  return names;
}

}  // namespace headroom::estimate
