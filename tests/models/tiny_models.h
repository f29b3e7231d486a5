// Tiny models of every kind that tests of files and first values need.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/model/model_config.h"
#include "headroom/models/model.h"
#include "tests/peers/formula_values.h"

namespace headroom::models {

inline model::ModelConfig config_from(const std::string& json) {
  return {parse_json(json, "config.json"), "config.json"};
}

inline model::ModelConfig tiny_gpt2(const std::string& more = "") {
  return config_from(R"({"model_type":"gpt2","vocab_size":11,"n_positions":6,"n_embd":8,"n_layer":2,
                         "n_head":2,"pad_token_id":0)" +
                     more + "}");
}

inline model::ModelConfig tiny_bert() {
  return config_from(R"({"model_type":"bert","vocab_size":11,"hidden_size":8,"num_hidden_layers":1,
                         "num_attention_heads":2,"intermediate_size":12,
                         "max_position_embeddings":6,"num_labels":3})");
}

inline model::ModelConfig tiny_llama(const std::string& more = "") {
  return config_from(R"({"model_type":"llama","vocab_size":11,"hidden_size":8,
                         "intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2)" +
                     more + "}");
}

inline model::ModelConfig tiny_resnet() {
  return config_from(R"({"model_type":"resnet","embedding_size":4,"hidden_sizes":[4,8],
                         "depths":[1,1],"layer_type":"basic","num_labels":3})");
}

// A model of any type. The file uses the general keys, and a type ignores the keys that it lacks.
// `more` overrides the values here.
inline std::shared_ptr<Model> tiny(const std::string& type, const std::string& more = "{}",
                                   const Settings& settings = {}) {
  Json file = parse_json(R"({"vocab_size":23,"hidden_size":16,"n_embd":16,"d_model":16,"d_kv":4,
    "d_ff":24,"dim":16,"hidden_dim":24,"ffn_dim":24,"intermediate_size":24,"num_hidden_layers":2,
    "num_layers":2,"n_layer":2,"n_layers":2,"num_attention_heads":4,"num_heads":4,"n_head":4,
    "n_heads":4,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":16,"n_positions":16,
    "attention_types":[[["global","local"],1]],"rotary_pct":1.0,"partial_rotary_factor":1.0,
    "num_local_experts":2,"word_embed_proj_dim":16,"pad_token_id":1,"decoder_start_token_id":1,
    "original_max_position_embeddings":16,"image_size":16,"patch_size":4,"embedding_size":4,
    "hidden_sizes":[4,8],"depths":[1,1],"num_stages":2})",
                         "config.json");
  file["model_type"] = type;
  file.update(parse_json(more, "more"));
  return build({file, "config.json"}, settings);
}

inline std::vector<std::pair<std::string, at::Tensor>> parameters_of(Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& each : model.module().named_parameters())
    all.emplace_back(each.key(), each.value());
  return all;
}

inline at::Tensor parameter_of(Model& model, const std::string& name) {
  return model.module().named_parameters()[name];
}

// Each parameter has numbers of its own, which a half can hold.
inline void fill(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters_of(model))
    tensor.copy_(values(name, tensor.sizes().vec()).to(at::kHalf));
}

inline void expect_equal(Model& a, Model& b) {
  const auto of_a = parameters_of(a), of_b = parameters_of(b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_EQ(of_a[i].first, of_b[i].first);
    EXPECT_TRUE(at::equal(of_a[i].second.cpu().to(at::kFloat), of_b[i].second.cpu().to(at::kFloat)))
        << of_a[i].first;
  }
}

}  // namespace headroom::models
