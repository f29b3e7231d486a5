// Checkpointed layers of whole models: results to the bit, and memory.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
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

// Bytes after a forward pass.
std::int64_t kept_by(c10::Device device, const std::string& type,
                     const Checkpointing& checkpointing) {
  const auto model = model_on(device, type);
  model->set_checkpointing(checkpointing);
  const Batch batch = random_batch(*model, {.rows = 2, .length = 16, .image = 64}, device);
  const std::int64_t before = allocated(device);
  const Output output = model->run(batch);
  return allocated(device) - before;
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

TEST_P(CheckpointedModel, KeepsTheSameBytesWithAndWithoutData) {
  const auto kept = [](sim::Mode mode) {
    const auto box = sim::simulate("1x1GiB", {.mode = mode});
    std::vector<std::int64_t> bytes;
    for (const Recompute how : {Recompute::none, Recompute::nonreentrant, Recompute::reentrant})
      bytes.push_back(kept_by(box.device(0), GetParam(), {.how = how}));
    const Checkpointing but_attention{.how = Recompute::nonreentrant, .but_attention = true};
    bytes.push_back(kept_by(box.device(0), GetParam(), but_attention));
    return bytes;
  };
  EXPECT_EQ(kept(sim::Mode::shape_only), kept(sim::Mode::compute));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointedModel,
                         ::testing::Values("llama", "gpt2", "resnet", "convnext"),
                         [](const auto& type) { return std::string(type.param); });

// Counted over the stages: the fourth block of stages with two and three is one of the last stage.
// How often an operator is called, on any thread.
class Calls {
 public:
  explicit Calls(const char* name) {
    counted = name;
    count = 0;
    handle_ =
        at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                if (counted == function.name()) ++count;
                                return std::unique_ptr<at::ObserverContext>();
                              }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Calls() { at::removeCallback(handle_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  [[nodiscard]] static int so_far() { return count; }

 private:
  inline static std::string counted;
  inline static std::atomic<int> count = 0;
  at::CallbackHandle handle_;
};

TEST(CheckpointingAllButAttention, RunsAttentionOnce) {
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  struct Case {
    const char* type;
    Attention attention;
    const char* call;  // of attention, and of nothing else
  };
  for (const Case& of : {Case{"llama", Attention::sdpa, "aten::scaled_dot_product_attention"},
                         Case{"gpt2", Attention::sdpa, "aten::scaled_dot_product_attention"},
                         Case{"llama", Attention::eager, "aten::softmax"}})
    for (const c10::Device device : {c10::Device(at::kCPU), box.device(0)}) {
      const auto calls = [&](const Checkpointing& checkpointing) {
        const Calls counting(of.call);
        Trained done = trained(device, of.type, checkpointing, of.attention);
        return std::pair(Calls::so_far(), std::move(done));
      };
      const auto [plain_calls, plain] = calls({});
      const auto [full_calls, full] = calls({.how = Recompute::nonreentrant});
      const auto [once_calls, once] =
          calls({.how = Recompute::nonreentrant, .but_attention = true});
      EXPECT_EQ(plain_calls, 2 * 3) << "two steps of three layers";
      EXPECT_EQ(full_calls, 2 * plain_calls);
      EXPECT_EQ(once_calls, plain_calls);
      expect_equal(
          once, plain,
          device.str() + ", " + of.type + " " + std::string(model::to_string(of.attention)));
      if (device.is_cpu()) continue;
      EXPECT_LT(once.kept, plain.kept);
      EXPECT_GT(once.kept, full.kept);
    }
}

TEST(CheckpointingAllButAttention, IsForTheNonreentrantForm) {
  const auto model = tiny("llama");
  try {
    model->set_checkpointing({.how = Recompute::reentrant, .but_attention = true});
    ADD_FAILURE() << "it was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("nonreentrant"));
  }
}

// A Llama of 12 layers: what waits for the backward pass, loss and logits included.
TEST(Checkpointing, OfEveryLayerKeepsAtMost35PercentOfTheBytes) {
  const auto box = sim::simulate("1x8GiB");
  const auto model = libtorch::on(box.device(0), [] {
    return build(config_from(R"({"model_type":"llama","vocab_size":8192,"hidden_size":512,
      "intermediate_size":2048,"num_hidden_layers":12,"num_attention_heads":8})"));
  });
  const Batch batch = random_batch(*model, {.rows = 4, .length = 256}, box.device(0));
  const auto kept = [&](const Checkpointing& checkpointing) {
    model->set_checkpointing(checkpointing);
    const std::int64_t before = allocated(box.device(0));
    const Tensor loss = model->run(batch).loss;
    return static_cast<double>(allocated(box.device(0)) - before);
  };
  const double plain = kept({}), all = kept({.how = Recompute::nonreentrant});
  EXPECT_LE(all / plain, 0.35);
  EXPECT_LE(kept({.how = Recompute::reentrant}) / plain, 0.35);
  const double but_attention = kept({.how = Recompute::nonreentrant, .but_attention = true});
  EXPECT_GT(but_attention, all);
  EXPECT_LT(but_attention / plain, 0.35);
}

TEST(Checkpointing, CountsTheBlocksOfAllStages) {
  const auto box = sim::simulate("1x1GiB");
  for (const char* type : {"resnet", "convnext"}) {
    const auto kept = [&](const std::set<int>& layers) {
      return kept_by(box.device(0), type, {.how = Recompute::nonreentrant, .layers = layers});
    };
    EXPECT_LT(kept({1}), kept({4})) << type << ": the last stage has smaller images";
    EXPECT_LT(kept({4}), kept({5})) << type << ": there is no sixth";
  }
}

}  // namespace
}  // namespace headroom::models
