// Checkpointed layers of whole models: results to the bit, and memory.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/sim/simulate.h"
#include "tests/models/tiny_models.h"

namespace headroom::models {
namespace {

using at::Tensor;
using nn::Recompute;

// Two steps of training without an update.
struct Trained {
  std::vector<std::pair<std::string, Tensor>> results;  // gradients, buffers, a random number
  std::int64_t kept = 0;                                // bytes after the last forward pass
};

// With dropout wherever the type has one.
std::shared_ptr<Model> model_on(c10::Device device, const std::string& type,
                                Attention attention = Attention::sdpa) {
  const char* const keys = R"({"attention_dropout":0.2,"attn_pdrop":0.2,"resid_pdrop":0.2,
    "embd_pdrop":0.2,"drop_path_rate":0.5,"depths":[2,3],"num_hidden_layers":3,"n_layer":3})";
  const auto model =
      libtorch::on(device, [&] { return tiny(type, keys, {.attention = attention}); });
  torch::manual_seed(1);
  at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(1);
  initialise(*model);
  model->train();
  return model;
}

std::int64_t allocated(c10::Device device) {
  return device.is_cpu() ? 0 : memory::get_gpu_memory_stats(device).allocated.count;
}

Trained trained(c10::Device device, const std::string& type, const Checkpointing& checkpointing,
                Attention attention = Attention::sdpa) {
  const auto model = model_on(device, type, attention);
  model->set_checkpointing(checkpointing);
  const Batch batch = random_batch(*model, {.rows = 2, .length = 8, .image = 16}, device);
  Trained done;
  for (int step = 0; step < 2; ++step) {
    const std::int64_t before = allocated(device);
    const Tensor loss = model->run(batch).loss;
    done.kept = allocated(device) - before;
    loss.backward();
    done.results.emplace_back("loss", loss.detach().cpu());
  }
  for (const auto& [name, parameter] : parameters_of(*model))
    done.results.emplace_back("gradient of " + name, parameter.grad().cpu());
  for (const auto& each : model->module().named_buffers())
    done.results.emplace_back(each.key(), each.value().cpu());
  done.results.emplace_back("a random number", at::rand({1}, at::device(device)).cpu());
  return done;
}

// `reorders`: sums over the gradients of layers may be made in another order. The reentrant form,
// as PyTorch's, lays a gradient out like the layer's input; in ConvNeXt it may be laid out
// otherwise.
void expect_equal(const Trained& one, const Trained& other, const std::string& where,
                  bool reorders = false) {
  ASSERT_EQ(one.results.size(), other.results.size());
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    const auto& [name, ours] = one.results[i];
    const Tensor& theirs = other.results[i].second;
    const bool close_is_enough = reorders && name.ends_with("layer_scale_parameter");
    EXPECT_TRUE(close_is_enough ? at::allclose(ours, theirs) : at::equal(ours, theirs))
        << where << ": " << name;
  }
}

class CheckpointedModel : public ::testing::TestWithParam<const char*> {};

// Batch norm's running statistics were to be updated by both runs of a layer, as in Python.
TEST_P(CheckpointedModel, TrainsTheSameToTheBit) {
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const c10::Device device : {c10::Device(at::kCPU), box.device(0)}) {
    const Trained plain = trained(device, GetParam(), {});
    for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
      for (const Checkpointing& checkpointing :
           {Checkpointing{.how = how}, {.how = how, .every = 2}, {.how = how, .layers = {0, 2}}}) {
        const Trained again = trained(device, GetParam(), checkpointing);
        expect_equal(again, plain, device.str() + ", " + std::to_string(static_cast<int>(how)),
                     how == Recompute::reentrant);
        if (!device.is_cpu()) {
          EXPECT_LT(again.kept, plain.kept);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointedModel,
                         ::testing::Values("llama", "gpt2", "resnet", "convnext"),
                         [](const auto& type) { return std::string(type.param); });

// Counted over the stages: the fourth block of stages with two and three is one of the last stage.
TEST(Checkpointing, CountsTheBlocksOfAllStages) {
  const auto box = sim::simulate("1x1GiB");
  for (const char* type : {"resnet", "convnext"}) {
    const auto kept = [&](const std::set<int>& layers) {
      const auto model = model_on(box.device(0), type);
      model->set_checkpointing({.how = Recompute::nonreentrant, .layers = layers});
      const Batch batch = random_batch(*model, {.rows = 2, .image = 64}, box.device(0));
      const std::int64_t before = allocated(box.device(0));
      const Output output = model->run(batch);
      return allocated(box.device(0)) - before;
    };
    EXPECT_LT(kept({1}), kept({4})) << type << ": the last stage has smaller images";
    EXPECT_LT(kept({4}), kept({5})) << type << ": there is no sixth";
  }
}

}  // namespace
}  // namespace headroom::models
