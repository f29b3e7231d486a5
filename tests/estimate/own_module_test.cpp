#include "headroom/estimate/own_module.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/estimate/find_max_batch_size.h"

namespace headroom::estimate {
namespace {

using namespace literals;
using torch::Tensor;
namespace nn = torch::nn;

// A weight of 256 MiB; a row of a batch takes 8 MiB, and so does what comes of it.
nn::Linear wide_net() {
  return nn::Linear(nn::LinearOptions(8192, 8192).bias(false));
}
Tensor rows_of(std::int64_t rows) {
  return torch::ones({rows * 256, 8192});
}

TEST(EstimateMemory, OfAModuleOfOnesOwnIsCountedByHand) {
  nn::Linear net = wide_net();
  const torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto report =
      estimate_memory(*net, rows_of, 4, dryrun::card_for("2GiB"), {.optimizer = &sgd});
  EXPECT_TRUE(report.fits());
  EXPECT_EQ(report.at_peak.parameters, 256_MiB);
  EXPECT_EQ(report.at_peak.inputs, 32_MiB);
  // The gradient of the weight, and that of the output from which it is made.
  EXPECT_EQ(report.at_peak.gradients, 256_MiB);
  EXPECT_EQ(report.at_peak.optimizer, 0_MiB);
  EXPECT_EQ(report.peak.phase, trace::Phase::backward);
  EXPECT_FALSE(net->weight.grad().defined());
  EXPECT_TRUE(net->weight.is_cpu());
}

TEST(EstimateMemory, AgreesWithTheLargestBatch) {
  nn::Linear net = wide_net();
  const gpu::SimulatedCard card = dryrun::card_for("3GiB");
  const auto largest = find_max_batch_size(*net, rows_of, card, 1, 999).size;
  ASSERT_TRUE(largest);
  EXPECT_TRUE(estimate_memory(*net, rows_of, *largest, card).fits());
  const auto next = estimate_memory(*net, rows_of, *largest + 1, card);
  EXPECT_FALSE(next.fits());
  EXPECT_GT(next.peak.reserved, card.total - card.reserved);  // what it would need
  EXPECT_EQ(next.at_peak.optimizer, 512_MiB);                 // an AdamW, as nothing is said
}

TEST(EstimateMemory, TakesATupleOfInputsAndALossOfItsOwn) {
  struct ScoresImpl : nn::Cloneable<ScoresImpl> {
    ScoresImpl() { reset(); }  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as LibTorch's
    void reset() override {
      table = register_module("table", nn::Embedding(1000, 64));
      head = register_module("head", nn::Linear(64, 10));
    }
    Tensor forward(const Tensor& tokens) { return head(table(tokens).mean(1)); }
    nn::Embedding table{nullptr};
    nn::Linear head{nullptr};
  } net;
  const auto batch_of = [](std::int64_t rows) {
    return std::tuple(torch::zeros({rows, 128}, torch::kLong), torch::zeros({rows}, torch::kLong));
  };
  const auto loss = [](ScoresImpl& model, const std::tuple<Tensor, Tensor>& batch) {
    return nn::functional::cross_entropy(model.forward(std::get<0>(batch)), std::get<1>(batch));
  };
  const auto report = estimate_memory(net, batch_of, 16, dryrun::card_for("1GiB"), {}, loss);
  std::vector<std::string> modules;
  for (const dryrun::ModulePeak& module : report.by_module) modules.push_back(module.name);
  EXPECT_THAT(modules, testing::UnorderedElementsAre("", "table", "head"));
  EXPECT_EQ(report.at_peak.inputs, Bytes{16 * 128 * 8 + 16 * 8});
}

TEST(EstimateMemory, RefusesABatchWithoutRows) {
  nn::Linear net = wide_net();
  EXPECT_THROW((void)estimate_memory(*net, rows_of, 0, dryrun::card_for("2GiB")), UsageError);
}

}  // namespace
}  // namespace headroom::estimate
