// Headroom's side of tests/python/adapters_test.py: saves or loads adapters, and prints the model's
// output with them, then with them merged if no weight is tied.
//
//   adapter_peer write CASE CONFIG FOLDER     CONFIG: the config.json of a published model, or
//   "net" adapter_peer read CASE CONFIG FOLDER
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "headroom/base/error.h"
#include "headroom/models/model.h"
#include "headroom/weights/adapter_files.h"
#include "tests/weights/adapter_net.h"

namespace headroom::weights {
namespace {

using namespace headroom::models;

const std::map<std::string, nn::LoraOptions>& cases() {
  static const std::map<std::string, nn::LoraOptions> all = {
      {"attention", {.rank = 3, .alpha = 5}},
      {"all", {.rank = 2, .alpha = 4, .targets = {"all-linear"}}},
      {"head", {.rank = 2, .targets = {"lm_head"}}},
      {"stabilised", {.rank = 4, .alpha = 6, .rank_stabilised = true, .targets = {"*.mlp.*"}}},
      {"every", {.rank = 2, .alpha = 3, .targets = {"table", "q", "inner.2", "wide", "flat"}}},
      {"patterns", {.rank = 2, .alpha = 3, .targets = {"*"}}},
  };
  return all;
}

nn::Lora added(torch::nn::Module& module, const std::string& name) {
  const nn::LoraOptions& options = cases().at(name);
  if (name != "patterns") return nn::add_lora(module, options);
  std::vector<nn::LoraLayer> layers;
  for (const std::string& layer : nn::lora_layers(module)) {
    const auto number = static_cast<std::int64_t>(layers.size());
    layers.push_back({.name = layer, .rank = 1 + number % 3, .alpha = number % 2 == 0 ? 2.5 : 3});
  }
  return nn::add_lora_to(module, layers, options);
}

void print_numbers(const at::Tensor& output) {
  const at::Tensor flat = output.detach().contiguous().flatten();
  for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf("%.9g ", flat[i].item<double>());
  std::printf("\n");
}

void run(const std::string& action, const std::string& name, const std::string& folder,
         torch::nn::Module& module, const std::function<at::Tensor()>& output) {
  module.eval();
  nn::Lora lora = action == "read" ? load_adapter(module, folder) : added(module, name);
  if (action == "write") {
    fill_adapters(lora);
    save_adapter(lora, folder);
  }
  print_numbers(output());
  try {
    lora.merge();
  } catch (const UsageError&) {
    return;  // the head is tied
  }
  print_numbers(output());
}

int main_of(const std::string& action, const std::string& name, const std::string& config,
            const std::string& folder) {
  if (config == "net") {
    AdapterNet net;
    run(action, name, folder, net, [&] { return net.forward(integers("tokens", {2, 7}, 0, 10)); });
    return 0;
  }
  const auto model = build(model::read_config(config));
  {
    const torch::NoGradGuard no_grad;
    for (auto& each : model->module().named_parameters()) {
      const at::Tensor numbers = values(each.key(), each.value().sizes().vec());
      const bool around_1 = each.value().dim() == 1 && each.key().ends_with("weight");
      each.value().copy_(around_1 ? 1 + 0.3 * numbers : 0.4 * numbers);
    }
  }
  Batch batch;
  batch.tokens = integers("tokens", {2, 7}, 3, model->config().count("vocab_size"));
  run(action, name, folder, model->module(), [&] { return model->run(batch).logits; });
  return 0;
}

}  // namespace
}  // namespace headroom::weights

int main(int count, char** arguments) {
  if (count != 5) return 2;
  try {
    return headroom::weights::main_of(arguments[1], arguments[2], arguments[3], arguments[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
