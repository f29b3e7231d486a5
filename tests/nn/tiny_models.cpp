#include "tests/nn/tiny_models.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"

namespace headroom::nn {
namespace {

Json keys_of(const std::string& type) {
  if (type == "gpt2")
    return {{"n_embd", 16},    {"n_head", 2},     {"n_layer", 2},    {"n_positions", 32},
            {"attn_pdrop", 0}, {"embd_pdrop", 0}, {"resid_pdrop", 0}};
  if (type == "gpt_neo")
    return {{"hidden_size", 16},
            {"num_heads", 2},
            {"num_layers", 2},
            {"attention_types", Json::parse(R"([[["global", "local"], 1]])")},
            {"max_position_embeddings", 32}};
  if (type == "distilbert")
    return {{"dim", 16},     {"hidden_dim", 32},       {"n_heads", 2},
            {"n_layers", 2}, {"attention_dropout", 0}, {"dropout", 0}};
  if (type == "t5")
    return {{"d_model", 16},
            {"d_kv", 8},
            {"d_ff", 32},
            {"num_heads", 2},
            {"num_layers", 2},
            {"dropout_rate", 0},
            {"decoder_start_token_id", 0}};
  if (type == "resnet")
    return {{"embedding_size", 8},
            {"hidden_sizes", {8, 16}},
            {"depths", {1, 1}},
            {"layer_type", "basic"}};
  if (type == "convnext") return {{"hidden_sizes", {8, 16}}, {"depths", {1, 1}}, {"num_stages", 2}};
  Json keys = {{"hidden_size", 16}, {"num_attention_heads", 2}, {"num_hidden_layers", 2}};
  keys[type == "opt" ? "ffn_dim" : "intermediate_size"] = 32;
  if (type == "opt") keys.update({{"word_embed_proj_dim", 16}, {"dropout", 0}});
  if (type == "vit" || type == "deit") keys.update({{"image_size", 16}, {"patch_size", 8}});
  if (type == "gemma2") keys.update({{"head_dim", 8}, {"query_pre_attn_scalar", 8}});
  if (type == "gpt_neox") keys["rotary_pct"] = 0.5;
  if (type == "phi") keys["partial_rotary_factor"] = 0.5;
  for (const char* dropout : {"hidden_dropout_prob", "attention_probs_dropout_prob"})
    if (type == "bert" || type == "roberta" || type == "vit" || type == "deit") keys[dropout] = 0;
  for (const char* dropout : {"resid_pdrop", "embd_pdrop"})
    if (type == "phi" || type == "phi3") keys[dropout] = 0;
  for (const char* heads : {"num_key_value_heads"})
    if (type != "bert" && type != "roberta" && type != "opt" && type != "vit" && type != "deit" &&
        type != "gpt_neox")
      keys[heads] = 1;
  return keys;
}

}  // namespace

model::ModelConfig tiny_config(const std::string& type) {
  Json file = {{"model_type", type}};
  if (type != "vit" && type != "deit" && type != "resnet" && type != "convnext")
    file["vocab_size"] = 96;
  if (type == "llama" || type == "qwen2") file["tie_word_embeddings"] = true;
  if (type == "phi3") file["pad_token_id"] = 0;
  file.update(keys_of(type));
  return model::ModelConfig(file, "a tiny " + type);
}

std::shared_ptr<models::Model> tiny_model(const std::string& type, const models::Settings& settings,
                                          c10::Device device) {
  at::set_num_threads(1);  // threads only cost time here, much of it on a machine that is busy
  const auto model =
      libtorch::on(at::kCPU, [&] { return models::build(tiny_config(type), settings); });
  torch::manual_seed(kTinySeed);
  models::initialise(*model);
  if (device != at::kCPU) libtorch::move(model->module(), device);
  model->train();
  return model;
}

models::Batch tiny_batch(const models::Model& model, c10::Device device) {
  torch::manual_seed(2);
  return models::random_batch(model, {.rows = 2, .length = 8, .image = 16}, device);
}

std::vector<at::Tensor> loss_and_gradients(models::Model& model, bool mixed) {
  models::Batch batch = tiny_batch(model);
  if (batch.labels.dim() > 1) batch.labels.select(1, 3).fill_(-100);
  if (batch.pixels.defined())
    batch.pixels = batch.pixels.to(model.module().parameters().front().scalar_type());
  std::vector<at::Tensor> result;
  for (int micro = 0; micro < 3; ++micro) {
    at::Tensor loss;
    {
      const libtorch::AutocastScope scope(torch::kCPU, torch::kBFloat16, mixed);
      loss = model.run(batch).loss;
    }
    loss.backward();
    result = {loss.detach()};
  }
  for (const at::Tensor& parameter : model.module().parameters())
    result.push_back(parameter.grad());
  return result;
}

void expect_close(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other,
                  double within, const std::string& where) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].defined(), other[i].defined()) << where << ", tensor " << i;
    if (!one[i].defined()) continue;
    const double scale = other[i].abs().max().item<double>();
    EXPECT_LE((one[i] - other[i]).abs().max().item<double>(), within * scale + 1e-8)
        << where << ", tensor " << i;
  }
}

}  // namespace headroom::nn
