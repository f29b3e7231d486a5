#include "headroom/nn/freeze.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/layers.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"

namespace headroom::nn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> trained(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) names.push_back(item.key());
  return names;
}

std::vector<std::string> trained_heads(const std::string& type,
                                       std::optional<models::Task> task = {}) {
  const auto model = tiny_model(type, {.task = task});
  freeze_all_but_heads(model->module());
  return trained(model->module());
}

TEST(FreezeAllButHeads, TrainsEachTasksHead) {
  using models::Task;
  EXPECT_THAT(trained_heads("vit"), ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(trained_heads("resnet"), ElementsAre("classifier.1.weight", "classifier.1.bias"));
  EXPECT_THAT(trained_heads("bert", Task::sequence_classification),
              ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(trained_heads("distilbert", Task::sequence_classification),
              ElementsAre("pre_classifier.weight", "pre_classifier.bias", "classifier.weight",
                          "classifier.bias"));
  EXPECT_THAT(trained_heads("llama", Task::sequence_classification), ElementsAre("score.weight"));
  EXPECT_THAT(trained_heads("gpt_neox"), ElementsAre("embed_out.weight"));
  EXPECT_THAT(trained_heads("mixtral"), ElementsAre("lm_head.weight"));
}

TEST(FreezeAllButHeads, AHeadThatIsTheEmbeddingTrainsIt) {
  EXPECT_THAT(trained_heads("gpt2"), ElementsAre("transformer.wte.weight"));
  EXPECT_THAT(trained_heads("t5"), ElementsAre("shared.weight"));
  EXPECT_THAT(trained_heads("bert"), Contains("bert.embeddings.word_embeddings.weight"));
}

TEST(FreezeAllButHeads, RefusesAModelWithoutAHeadAndNamesItsParts) {
  torch::nn::Module net;
  net.register_module("body", std::make_shared<Linear>(2, 2));
  try {
    freeze_all_but_heads(net);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("body"));
  }
  EXPECT_THAT(trained(net), ElementsAre("body.weight", "body.bias")) << "nothing is frozen";
  freeze_all_but_heads(net, {"body"});
  EXPECT_THAT(trained(net), ElementsAre("body.weight", "body.bias"));
}

TEST(FreezeAllButHeads, TheFrozenPartGoesOnTraining) {
  const auto model = tiny_model("resnet");
  freeze_all_but_heads(model->module());
  const auto counted = [&] {
    double all = 0;
    for (const auto& item : model->module().named_buffers())
      if (item.key().ends_with("num_batches_tracked")) all += item.value().item<double>();
    return all;
  };
  EXPECT_EQ(counted(), 0);
  model->run(tiny_batch(*model)).loss.backward();
  EXPECT_GT(counted(), 0);
  for (const torch::Tensor& parameter : model->module().parameters())
    EXPECT_EQ(parameter.grad().defined(), parameter.requires_grad());
}

// Two layers of 1024 and a head; 4 MiB of states after each. Frozen, the head alone keeps its
// input.
TEST(FreezeAllButHeads, KeepsNoActivationsOfTheFrozenPart) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  struct Net : torch::nn::Module {
    explicit Net(torch::Device device) {
      libtorch::on(device, [this] {
        for (const char* name : {"a", "b", "score"})
          register_module(name, std::make_shared<Linear>(1024, 1024, false));
      });
    }
  };
  const auto kept = [&](bool frozen) {
    Net net(box.device(0));
    if (frozen) freeze_all_but_heads(net);
    torch::Tensor states = torch::empty({1024, 1024}, box.device(0));
    for (const auto& child : net.children())
      states = torch::tanh((*std::dynamic_pointer_cast<Linear>(child))(states));
    const auto current = [&] { return box.card(0).statistics().allocated_bytes.all.current; };
    const std::int64_t with_graph = current();
    states = states.detach();
    return (with_graph - current()) / (4 << 20);
  };
  EXPECT_EQ(kept(false), 3);  // the inputs of three products; the last tanh's result is still there
  EXPECT_EQ(kept(true), 1);
}

}  // namespace
}  // namespace headroom::nn
