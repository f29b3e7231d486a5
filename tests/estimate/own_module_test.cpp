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
Tensor wide_rows(std::int64_t rows) {
  return torch::ones({rows * 256, 8192});
}

TEST(EstimateMemory, MatchesAHandCountForAUsersModule) {
  nn::Linear net = wide_net();
  const torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto report =
      estimate_memory(*net, wide_rows, 4, dryrun::card_for("2GiB"), {.optimizer = &sgd});
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
  const auto largest = find_max_batch_size(*net, wide_rows, card, 1, 999).size;
  ASSERT_TRUE(largest);
  EXPECT_TRUE(estimate_memory(*net, wide_rows, *largest, card).fits());
  const auto next = estimate_memory(*net, wide_rows, *largest + 1, card);
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
  for (const trace::ModulePeak& module : report.by_module) modules.push_back(module.name);
  EXPECT_THAT(modules, testing::UnorderedElementsAre("", "table", "head"));
  EXPECT_EQ(report.at_peak.inputs, Bytes{16 * 128 * 8 + 16 * 8});
}

// As LibTorch's tutorials write it, without clone(): once "clone() has not been implemented for
// Net".
struct PlainNetImpl : nn::Module {
  PlainNetImpl() { inner = register_module("inner", nn::Linear(1024, 1024)); }
  torch::Tensor forward(const torch::Tensor& x) { return inner(x); }
  nn::Linear inner{nullptr};
};
TORCH_MODULE(PlainNet);

TEST(EstimateMemory, TakesAFunctionThatMakesTheModelInEachOfItsForms) {
  const auto wide_rows = [](std::int64_t rows) { return torch::randn({rows, 1024}); };
  const auto card = dryrun::card_for("1GiB");
  const auto by_value = estimate_memory([] { return PlainNetImpl(); }, wide_rows, 64, card);
  // The weight, its gradient and two of the optimizer's; the batch and the output.
  EXPECT_GT(by_value.peak.allocated, 16_MiB);
  EXPECT_EQ(by_value.at_peak.parameters, 4_MiB + 4_KiB);
  const auto as_holder = estimate_memory([] { return PlainNet(); }, wide_rows, 64, card);
  const auto shared =
      estimate_memory([] { return std::make_shared<PlainNetImpl>(); }, wide_rows, 64, card);
  EXPECT_EQ(as_holder.peak.allocated, by_value.peak.allocated);
  EXPECT_EQ(shared.peak.allocated, by_value.peak.allocated);
}

TEST(EstimateMemory, MakesAModelThatReadsItsValuesOnTheHost) {
  struct Picky : nn::Module {
    Picky() {
      const auto drawn = torch::rand({1 << 18}) + 1;  // more than a card keeps values of
      TORCH_CHECK(drawn.sum().item<float>() > 1, "no values");
      weight = register_parameter("weight", drawn);
    }
    torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
    torch::Tensor weight;
  };
  const auto report = estimate_memory([] { return std::make_shared<Picky>(); },
                                      [](std::int64_t rows) {
                                        return torch::ones({rows, 1});
                                      },
                                      1, dryrun::card_for("1GiB"));
  EXPECT_EQ(report.at_peak.parameters, 1_MiB);
}

// Once a segmentation fault.
TEST(EstimateMemory, RefusesAFunctionThatMakesNoModel) {
  const auto card = dryrun::card_for("1GiB");
  const auto make = [] { return std::shared_ptr<PlainNetImpl>(); };
  EXPECT_THROW((void)estimate_memory(make, wide_rows, 1, card), UsageError);
  EXPECT_THROW((void)find_max_batch_size(make, wide_rows, card, 1, 2), UsageError);
}

// LibTorch's text names torch::nn::Cloneable alone.
TEST(EstimateMemory, SuggestsAFunctionForAClassWithoutClone) {
  PlainNet net;
  const auto card = dryrun::card_for("1GiB");
  EXPECT_THAT([&] { (void)estimate_memory(*net, wide_rows, 1, card); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("[] { return Net(); }")));
  EXPECT_THAT([&] { (void)find_max_batch_size(*net, wide_rows, card, 1, 2); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("[] { return Net(); }")));
}

// The state of Adagrad is made by its constructor, before the first step; once an input.
TEST(EstimateMemory, CountsStateThatIsThereBeforeTheFirstStep) {
  nn::Linear net = wide_net();
  const torch::optim::Adagrad adagrad(net->parameters());
  const auto report =
      estimate_memory(*net, wide_rows, 4, dryrun::card_for("2GiB"), {.optimizer = &adagrad});
  EXPECT_EQ(report.at_peak.optimizer, 256_MiB);
  EXPECT_EQ(report.at_peak.inputs, 32_MiB);
}

TEST(FindMaxBatchSize, TakesAFunctionThatMakesTheModel) {
  const auto wide_rows = [](std::int64_t rows) { return torch::randn({rows, 1024}); };
  const auto card = dryrun::card_for("64MiB");
  const MaxBatch found =
      find_max_batch_size([] { return PlainNet(); }, wide_rows, card, 1, 100'000);
  ASSERT_TRUE(found.size);
  EXPECT_TRUE(estimate_memory([] { return PlainNet(); }, wide_rows, *found.size, card).fits());
  EXPECT_FALSE(estimate_memory([] { return PlainNet(); }, wide_rows, *found.size + 1, card).fits());
}

// Once the refusal was `[simulate]`'s, which the caller had not called.
TEST(EstimateMemory, NamesTheCallerInItsRefusalDuringASimulation) {
  const sim::Simulation box = sim::simulate("1GiB");
  const auto wide_rows = [](std::int64_t rows) { return torch::randn({rows, 1024}); };
  const auto card = dryrun::card_for("1GiB");
  EXPECT_THAT([&] { (void)estimate_memory([] { return PlainNet(); }, wide_rows, 1, card); },
              testing::ThrowsMessage<UsageError>(testing::StartsWith("[estimate_memory]")));
  EXPECT_THAT([&] { (void)find_max_batch_size([] { return PlainNet(); }, wide_rows, card, 1, 2); },
              testing::ThrowsMessage<UsageError>(testing::StartsWith("[find_max_batch_size]")));
}

TEST(EstimateMemory, RefusesABatchWithoutRows) {
  nn::Linear net = wide_net();
  EXPECT_THROW((void)estimate_memory(*net, wide_rows, 0, dryrun::card_for("2GiB")), UsageError);
}

}  // namespace
}  // namespace headroom::estimate
