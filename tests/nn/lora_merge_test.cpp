// A weight that forward() uses in two ways. Once merge() saw only registered layers: in a GPT whose
// head is matmul(x, table->weight.t()) the adapter of the embedding was merged without a word, and
// the logits moved by as much as they measure.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "headroom/base/error.h"
#include "headroom/nn/lora.h"

namespace headroom::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

struct TiedNet : torch::nn::Module {
  TiedNet() {
    torch::manual_seed(3);
    table = register_module("table", torch::nn::Embedding(10, 6));
    middle = register_module("middle", torch::nn::Linear(6, 6));
  }
  Tensor states() { return middle(table(torch::arange(10).view({2, 5}))); }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear middle{nullptr};
};

void fill(const Lora& lora) {
  const torch::NoGradGuard no_grad;
  for (auto [name, parameter] : lora.parameters()) parameter.copy_(torch::randn(parameter.sizes()));
}

struct Tie {
  const char* name;
  const char* target;
  std::function<Tensor(TiedNet&)> forward;
};

const std::vector<Tie> kTies{
    {"matmul", "table",
     [](TiedNet& net) { return torch::matmul(net.states(), net.table->weight.t()); }},
    {"linear", "table",
     [](TiedNet& net) { return torch::nn::functional::linear(net.states(), net.table->weight); }},
    {"mm", "table",
     [](TiedNet& net) { return net.states().flatten(0, 1).mm(net.table->weight.t()); }},
    {"einsum", "table",
     [](TiedNet& net) {
       return torch::einsum("bth,vh->btv", {net.states(), net.table->weight});
     }},
    {"index_select", "table",
     [](TiedNet& net) {
       return net.states().sum() + net.table->weight.index_select(0, torch::arange(3));
     }},
    {"decoder", "middle",
     [](TiedNet& net) { return torch::matmul(net.states(), net.middle->weight); }},
    {"elsewhere", "middle",
     [](TiedNet& net) { return torch::mv(net.middle->weight, net.states()[0][0]); }},
};

class LoraOverATie : public testing::TestWithParam<Tie> {};
INSTANTIATE_TEST_SUITE_P(OfEachOperator, LoraOverATie, testing::ValuesIn(kTies),
                         [](const auto& tie) { return std::string(tie.param.name); });

TEST_P(LoraOverATie, IsNotMergedOnceForwardHasRun) {
  TiedNet net;
  const Tensor plain = GetParam().forward(net);
  Lora lora = add_lora(net, {.rank = 2, .targets = {GetParam().target}});
  EXPECT_TRUE(GetParam().forward(net).equal(plain));
  fill(lora);
  const Tensor beside = GetParam().forward(net);
  EXPECT_THAT([&] { lora.merge(); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(GetParam().target),
                                              HasSubstr("another operator of forward(), too"))));
  EXPECT_FALSE(lora.merged());
  EXPECT_TRUE(GetParam().forward(net).equal(beside));
}

TEST_P(LoraOverATie, TrainsAsBefore) {
  TiedNet net;
  const Lora lora = add_lora(net, {.rank = 2, .targets = {GetParam().target}});
  fill(lora);
  GetParam().forward(net).pow(2).sum().backward();
  for (const auto& [name, parameter] : lora.parameters())
    EXPECT_GT(parameter.grad().abs().sum().item<float>(), 0) << name;
}

// What looks at a weight does not use it: norms, copies, comparisons, files.
TEST(LoraMerge, IsNotRefusedForALookAtTheWeights) {
  TiedNet net;
  Lora lora = add_lora(net, {.rank = 2, .targets = {"table", "middle"}});
  fill(lora);
  net.states().sum().backward();
  const Tensor kept = net.table->weight.clone();
  EXPECT_GT(net.table->weight.norm().item<float>(), 0);
  EXPECT_TRUE(net.table->weight.equal(kept));
  EXPECT_EQ((net.table->weight - kept).abs().max().item<float>(), 0);
  std::stringstream file;
  torch::save(net.table, file);
  const Tensor beside = net.states();
  lora.merge();
  EXPECT_TRUE(net.states().allclose(beside, 1e-4, 1e-5));
}

TEST(LoraMerge, WantsToSeeAnEmbeddingUsedFirst) {
  TiedNet net;
  Lora lora = add_lora(net, {.targets = {"table"}});
  EXPECT_THAT([&] { lora.merge(); }, ThrowsMessage<UsageError>(HasSubstr("table, not used yet")));
  (void)net.states();
  lora.merge();
  EXPECT_TRUE(lora.merged());
  lora.unmerge();
}

// Once the answer for an LSTM was "expected targets that the model has", though it has one.
TEST(LoraTargets, AreAnsweredTrulyWhereTheyCannotHaveAdapters) {
  TiedNet net;
  net.register_module("rnn", torch::nn::LSTM(6, 6));
  EXPECT_THAT([&] { (void)add_lora(net, {.targets = {"rnn"}}); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("[add_lora] expected layers of a kind that can have adapters, "
                                  "received 'rnn, a torch::nn::LSTMImpl'"),
                        HasSubstr("try table, middle"))));
  EXPECT_THAT([&] { (void)add_lora(net, {.targets = {"gru"}}); },
              ThrowsMessage<UsageError>(HasSubstr("expected targets that the model has")));
}

}  // namespace
}  // namespace headroom::nn
