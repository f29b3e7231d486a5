#include "text_net.h"

#include <string>

#include "headroom/libtorch/on.h"
#include "headroom/nn/checkpoint.h"

namespace headroom::train {
namespace {

struct TextImpl : torch::nn::Module {
  TextSizes sizes;
  torch::nn::Embedding words{nullptr};
  std::vector<torch::nn::Linear> wide, narrow;
  torch::nn::Linear head{nullptr};
  bool checkpointing = false;

  explicit TextImpl(const TextSizes& given) : sizes(given) {
    words = register_module("words", torch::nn::Embedding(sizes.vocabulary, sizes.width));
    for (int i = 0; i < sizes.blocks; ++i) {
      const std::string name = std::to_string(i);
      wide.push_back(
          register_module("wide" + name, torch::nn::Linear(sizes.width, 4 * sizes.width)));
      narrow.push_back(
          register_module("narrow" + name, torch::nn::Linear(4 * sizes.width, sizes.width)));
    }
    head = register_module("head", torch::nn::Linear(sizes.width, sizes.vocabulary));
  }
  torch::Tensor block(std::size_t i, const torch::Tensor& in) {
    return torch::dropout(narrow[i](torch::gelu(wide[i](in))), sizes.dropout, is_training());
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    const nn::Recompute how = checkpointing ? nn::Recompute::nonreentrant : nn::Recompute::none;
    torch::Tensor x = words(tokens);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const std::function<torch::Tensor(const torch::Tensor&)> one =
          [this, i](const torch::Tensor& in) { return block(i, in); };
      x = x + nn::checkpointed(how, one, x);
    }
    return head(x);
  }
};
TORCH_MODULE(Text);

}  // namespace

Training text(c10::Device device, const StepOptions& options, const TextSizes& sizes) {
  torch::manual_seed(3);
  Text net = libtorch::on(device, [&] { return Text(sizes); });
  Training run{
      .module = net.ptr(),
      .optimizer = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused})};
  run.objective.loss = [net](const Tensors& rows) mutable {
    return torch::nn::functional::cross_entropy(net->forward(rows[0]).flatten(0, 1),
                                                rows[1].flatten());
  };
  run.objective.follow = [net](const Plan& plan) mutable {
    net->checkpointing = plan.has("checkpointing");
  };
  run.objective.techniques = {"checkpointing"};
  run.step = std::make_unique<Step>(*run.module, *run.optimizer, run.objective, options);
  torch::manual_seed(4);
  return run;
}

Tensors tokens(std::int64_t rows, std::int64_t length, const TextSizes& sizes) {
  return {torch::randint(sizes.vocabulary, {rows, length}),
          torch::randint(sizes.vocabulary, {rows, length})};
}

}  // namespace headroom::train
