// Headroom's predictions beside a real card: the same step, the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headroom/cuda/load.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/holders.h"
#include "headroom/gpu/nvml.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/sampler.h"
#include "headroom/gpu/select.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/torch_device.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"
#include "headroom/oom/classify.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/memory_reader.h"
#include "headroom/trace/recorder.h"
#include "headroom/trace/replay.h"
#include "tests/sim/fixtures/fresh_process.h"

namespace headroom {
namespace {

using namespace literals;

class Card : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_functions().device_count() == 0) GTEST_SKIP() << cuda_functions().why_absent();
    torch::manual_seed(0);
    (void)memory::clear_gpu_memory(true);
    memory::reset_peak_memory_stats(card);
  }
  const c10::Device card{c10::DeviceType::CUDA, 0};
};

TEST_F(Card, IsSeenByAProgramThatOnlyLinksHeadroom) {
  EXPECT_EQ(cuda_functions().name, "cuda");
  EXPECT_EQ(cuda_functions().why_absent(), "");
  EXPECT_TRUE(torch::cuda::is_available());
}

TEST_F(Card, IsTheOneThatTheDriverLists) {
  gpu::Sampler sampler(gpu::make_nvml_source());
  const gpu::Machine machine = sampler.fresh();
  const auto best = gpu::find_best_device(machine, {.need = 1_GiB});
  ASSERT_EQ(best.picked.size(), 1U) << best.sentence;
  EXPECT_EQ(libtorch::torch_device(best, machine), card);
}

TEST_F(Card, HasThisProcessAmongItsHolders) {
  const at::Tensor held = torch::empty({256 << 20}, torch::dtype(torch::kByte).device(card));
  gpu::Sampler sampler(gpu::make_nvml_source());
  bool found = false;
  for (const auto& holder : gpu::explain_holders(sampler.fresh(), ProcessTable(), false)) {
    if (!holder.process || holder.process->pid != ::getpid()) continue;
    found = true;
    EXPECT_EQ(holder.holder_class, gpu::HolderClass::running) << holder.why;
    ASSERT_TRUE(holder.used);
    EXPECT_GT(*holder.used, 256_MiB);
  }
  EXPECT_TRUE(found);
}

TEST_F(Card, CountsAndGivesBack) {
  const memory::GpuMemoryScope scope(card);
  at::Tensor held = torch::empty({64 << 20}, torch::dtype(torch::kByte).device(card));
  auto stats = memory::get_gpu_memory_stats(card);
  EXPECT_EQ(stats.allocated, 64_MiB);
  ASSERT_TRUE(stats.free && stats.total);
  held = at::Tensor();
  const Bytes before = *stats.free;
  EXPECT_GE(memory::clear_gpu_memory().given_back(), 64_MiB);
  stats = memory::get_gpu_memory_stats(card);
  EXPECT_EQ(stats.reserved, Bytes{0});
  EXPECT_EQ(*stats.free - before, 64_MiB);
  EXPECT_EQ(scope.use().peak_rise, 64_MiB);
}

TEST_F(Card, ForceDropsTheWorkspaces) {
  {
    const at::Tensor weight = torch::randn({256, 256}, torch::device(card).requires_grad(true));
    torch::linear(weight, weight, weight[0]).sum().backward();
  }
  gpu::Sampler sampler(gpu::make_nvml_source());
  const auto* profile =
      gpu::find_profile(gpu::card_named(sampler.fresh().cards.at(0).name).profile);
  ASSERT_TRUE(profile != nullptr && profile->cublas_workspace && profile->cublaslt_workspace);
  // One of cuBLAS for the thread of forward and one for that of backward.
  EXPECT_EQ(memory::get_gpu_memory_stats(card).allocated,
            2 * *profile->cublas_workspace + *profile->cublaslt_workspace);
  (void)memory::clear_gpu_memory(true);
  EXPECT_EQ(memory::get_gpu_memory_stats(card).allocated, Bytes{0});
}

TEST_F(Card, AnEndlessRequestIsAnOutOfMemoryToTheClassifier) {
  std::string text;
  try {
    (void)torch::empty({std::int64_t{1} << 45}, torch::dtype(torch::kByte).device(card));
  } catch (const c10::OutOfMemoryError& error) {
    text = error.what();
  }
  const auto judgement = oom::classify({.text = text, .exit_code = 1});
  EXPECT_EQ(judgement.verdict, oom::Verdict::gpu_oom) << text;
  EXPECT_EQ(memory::get_gpu_memory_stats(card).ooms > 0, true);
}

// ---- The same step on the card and without it

struct NetImpl : torch::nn::Module {
  NetImpl(int width, int layers) {
    embed = register_module("embed", torch::nn::Embedding(5000, width));
    for (int i = 0; i < layers; ++i) {
      const auto name = std::to_string(i);
      norms.push_back(register_module("norm" + name,
                                      torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}))));
      ups.push_back(register_module("up" + name, torch::nn::Linear(width, 4 * width)));
      downs.push_back(register_module("down" + name, torch::nn::Linear(4 * width, width)));
    }
    head = register_module("head", torch::nn::Linear(width, 5000));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = embed(tokens);
    for (std::size_t i = 0; i < ups.size(); ++i) {
      const auto heads = norms[i](x).view({x.size(0), x.size(1), 8, -1}).transpose(1, 2);
      const auto mixed = torch::scaled_dot_product_attention(heads, heads, heads, {}, 0, true);
      x = x + mixed.transpose(1, 2).reshape(x.sizes());
      x = x + downs[i](torch::gelu(ups[i](norms[i](x))));
    }
    return head(x);
  }
  torch::nn::Embedding embed{nullptr};
  std::vector<torch::nn::LayerNorm> norms;
  std::vector<torch::nn::Linear> ups, downs;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

struct Shape {
  const char* name;
  int width, layers, rows, tokens;
  at::ScalarType type;
  const char* optimizer;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

dryrun::Subject training(const Shape& shape, c10::Device device) {
  auto net = libtorch::on(device, shape.type, [&] { return Net(shape.width, shape.layers); });
  const auto tokens =
      torch::zeros({shape.rows, shape.tokens}, torch::dtype(torch::kLong).device(device));
  std::shared_ptr<optim::Optimizer> optimizer;
  const std::string which = shape.optimizer;
  if (which == "sgd")
    optimizer = optim::make_sgd(net->parameters());
  else
    optimizer = optim::make_adamw(net->parameters(),
                                  {.form = which == "fused"  ? optim::OptimizerForm::fused
                                           : which == "loop" ? optim::OptimizerForm::loop
                                                             : optim::OptimizerForm::foreach});
  return {.step =
              [=]() mutable {
                const auto logits = net(tokens);
                torch::nll_loss(torch::log_softmax(logits.flatten(0, 1), 1), tokens.flatten())
                    .backward();
                optimizer->step();
                optimizer->zero_grad();
              },
          .keeps = {net.ptr(), optimizer}};
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{"small", 256, 2, 4, 128, at::kFloat, "sgd"},
                                         {"fp32_loop", 512, 4, 8, 256, at::kFloat, "loop"},
                                         {"fp32_foreach", 1024, 6, 8, 512, at::kFloat, "foreach"},
                                         {"bf16_fused", 1024, 6, 8, 1024, at::kBFloat16, "fused"},
                                         {"odd", 520, 3, 5, 333, at::kFloat, "loop"},
                                         {"wide_bf16", 4096, 4, 4, 1024, at::kBFloat16, "foreach"}};
  return all;
}

// Predicted before anything runs on the card: once autograd has threads for it, no dry run is
// possible in this process.
std::map<std::string, trace::Peak>& predictions() {
  static std::map<std::string, trace::Peak> all;
  return all;
}

class Predicted : public testing::Environment {
  void SetUp() override {
    gpu::Sampler sampler(gpu::make_nvml_source());
    const gpu::Machine machine = sampler.fresh();
    if (machine.cards.empty()) return;
    for (const Shape& shape : shapes())
      predictions()[shape.name] = dryrun::dry_run(machine.cards[0].name, [&](c10::Device device) {
                                    return training(shape, device);
                                  }).peak;
  }
};
const auto* const kPredicted = testing::AddGlobalTestEnvironment(new Predicted);

class StepOnACard : public Card, public testing::WithParamInterface<Shape> {};

// Without limit on both sides. A first step warms the card up, because some memory is taken only
// once.
TEST_P(StepOnACard, TakesWhatTheDryRunSays) {
  const trace::Peak& predicted = predictions().at(GetParam().name);
  auto real = training(GetParam(), card);
  trace::Recorder recorder;
  {
    const auto history = memory::record_history(card, recorder);
    for (int step = 0; step < 2; ++step) real.step();
  }
  const auto stats = memory::get_gpu_memory_stats(card);
  std::cout << "[ CARD     ] " << GetParam().name << ": allocated " << stats.max_allocated.count
            << " predicted " << predicted.allocated.count << " reserved "
            << stats.max_reserved.count << " predicted " << predicted.reserved.count
            << " requested " << stats.max_requested.count << " predicted "
            << predicted.requested.count << "\n";
  EXPECT_NEAR(static_cast<double>(predicted.allocated.count) /
                  static_cast<double>(stats.max_allocated.count),
              1, 0.01);
  EXPECT_NEAR(
      static_cast<double>(predicted.reserved.count) / static_cast<double>(stats.max_reserved.count),
      1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepOnACard, testing::ValuesIn(shapes()),
                         [](const auto& shape) { return std::string(shape.param.name); });

// Replays a recording from the card with the model of the allocator.
TEST_F(Card, ARecordedHistoryPlaysToTheSamePeaks) {
  trace::Recorder recorder;
  Bytes reserved;
  {
    const auto history = memory::record_history(card, recorder);
    auto real = training({"", 512, 4, 8, 256, at::kFloat, "foreach"}, card);
    for (int step = 0; step < 3; ++step) real.step();
    reserved = memory::get_gpu_memory_stats(card).max_reserved;
  }
  const auto events = trace::read_memory(recorder);
  const auto played = trace::replay(*events);
  EXPECT_EQ(played.card.reserved_peak.peak, reserved);
  EXPECT_TRUE(played.card.refused.empty());
}

TEST_F(Card, AModelMovesThereAndBack) {
  auto net = Net(256, 2);
  const auto before = net->head->weight.clone();
  libtorch::move(*net, card);
  EXPECT_EQ(net->head->weight.device(), card);
  libtorch::move(*net, c10::kCPU);
  EXPECT_TRUE(before.equal(net->head->weight));
}

TEST_F(Card, AModelThatDoesNotFitStaysWhereItIs) {
  auto net = Net(1024, 4);
  const auto fraction = cuda_functions().memory_fraction(0);
  const double total = static_cast<double>(cuda_functions().memory_info(0).second.count);
  cuda_functions().set_memory_fraction(0, static_cast<double>((64_MiB).count) / total);
  EXPECT_THROW(libtorch::move(*net, card), c10::OutOfMemoryError);
  cuda_functions().set_memory_fraction(0, fraction);
  for (const auto& parameter : net->parameters()) EXPECT_TRUE(parameter.is_cpu());
  EXPECT_EQ(memory::get_gpu_memory_stats(card).allocated, Bytes{0});
}

TEST_F(Card, IsNotTrainedOnInAProcessThatSimulates) {
  const auto train = [] {
    const auto weight = torch::ones({4}, torch::device(torch::kCUDA).requires_grad(true));
    weight.sum().backward();
    return std::string("trained");
  };
  EXPECT_IN_A_NEW_PROCESS(train, "^trained$");
  const auto simulate_first = [&] {
    (void)sim::simulate("1GiB");
    return train();
  };
  EXPECT_IN_A_NEW_PROCESS(simulate_first, "one accelerator per process");
}

TEST_F(Card, ComputesAStepAsTheCpuDoes) {
  for (const auto form :
       {optim::OptimizerForm::loop, optim::OptimizerForm::foreach, optim::OptimizerForm::fused}) {
    const auto on_cpu = torch::randn({1000});
    const auto on_card = on_cpu.to(card);
    const auto gradient = torch::randn({1000});
    for (const auto& parameter : {on_cpu, on_card}) {
      parameter.mutable_grad() = gradient.to(parameter.device());
      auto optimizer = optim::make_adamw({parameter}, {.form = form});
      for (int step = 0; step < 3; ++step) optimizer->step();
    }
    EXPECT_TRUE(on_cpu.allclose(on_card.cpu(), 1e-5, 1e-6)) << static_cast<int>(form);
  }
}

}  // namespace
}  // namespace headroom
