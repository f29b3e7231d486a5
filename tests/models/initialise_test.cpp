// tests/peers/transformers_numbers_test.cpp compares the distribution of values with that of
// transformers.
#include "headroom/models/initialise.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/sim/simulate.h"
#include "tests/models/tiny_models.h"

namespace headroom::models {
namespace {

std::vector<std::string> all_types() {
  return model::model_types();
}

TEST(Initialise, GivesEveryParameterOfEveryTypeAValue) {
  for (const std::string& type : all_types()) {
    const auto model = tiny(type);
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : parameters_of(*model)) tensor.fill_(NAN);
    initialise(*model);
    for (const auto& [name, tensor] : parameters_of(*model))
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << type << " " << name;
  }
}

TEST(Initialise, WritesInPlaceAndKeepsWeightsTrainable) {
  const auto model = build(tiny_gpt2());
  const auto before = parameters_of(*model);
  initialise(*model);
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(tensor.is_same(parameter_of(*model, name))) << name;
    EXPECT_TRUE(tensor.requires_grad()) << name;
  }
}

TEST(Initialise, GivesTheSameValuesForTheSameSeed) {
  const auto a = build(tiny_gpt2()), b = build(tiny_gpt2());
  at::manual_seed(3);
  initialise(*a);
  at::manual_seed(3);
  initialise(*b);
  expect_equal(*a, *b);
  initialise(*b);
  EXPECT_FALSE(at::equal(parameter_of(*a, "transformer.wte.weight"),
                         parameter_of(*b, "transformer.wte.weight")));
}

TEST(Initialise, ForgetsWhatBatchNormsHaveCounted) {
  const auto model = build(tiny_resnet());
  auto buffers = model->module().named_buffers();
  const std::string norm = "resnet.embedder.embedder.normalization.";
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"})
    buffers[norm + name].fill_(9);
  initialise(*model);
  EXPECT_EQ(buffers[norm + "running_mean"].sum().item<double>(), 0);
  EXPECT_EQ(buffers[norm + "running_var"].sum().item<double>(), 4);
  EXPECT_EQ(buffers[norm + "num_batches_tracked"].item<int>(), 0);
}

TEST(Initialise, TouchesOnlyWhatIsNamed) {
  const auto model = build(tiny_bert(), {.task = Task::sequence_classification});
  fill(*model);
  const auto other = build(tiny_bert(), {.task = Task::sequence_classification});
  fill(*other);
  initialise(*model, {"classifier.weight"});
  for (const auto& [name, tensor] : parameters_of(*model))
    EXPECT_EQ(at::equal(tensor, parameter_of(*other, name)), name != "classifier.weight") << name;
}

TEST(Initialise, RefusesASpreadBelowZero) {
  const auto model = build(tiny_gpt2(R"(,"initializer_range":-0.02)"));
  EXPECT_THROW(initialise(*model), InputError);
}

// A card in compute mode has the CPU's numbers for the same seed; what the config fixes is there
// since the model was built on the card.
TEST(Initialise, IsTheSameOnASimulatedCardWithAllBuffers) {
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const std::string& type : all_types()) {
    const auto here = tiny(type);
    const auto there = libtorch::on(box.device(0), [&] { return tiny(type); });
    at::manual_seed(5);
    initialise(*here);
    at::Generator generator = box.card(0).generator();
    generator.set_current_seed(5);
    initialise(*there);
    expect_equal(*here, *there);
    const auto of_here = here->module().named_buffers(), of_there = there->module().named_buffers();
    ASSERT_EQ(of_here.size(), of_there.size()) << type;
    for (const auto& buffer : of_here) {
      EXPECT_EQ(of_there[buffer.key()].device(), box.device(0)) << type << " " << buffer.key();
      EXPECT_TRUE(at::equal(buffer.value(), of_there[buffer.key()].cpu()))
          << type << " " << buffer.key();
    }
  }
}

}  // namespace
}  // namespace headroom::models
