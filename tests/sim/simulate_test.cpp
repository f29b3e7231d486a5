#include "headroom/sim/simulate.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>

#include "headroom/base/error.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/operator_refusal.h"
#include "tests/gpu/fixtures/surroundings.h"
#include "tests/sim/fixtures/fresh_process.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using gpu::fixtures::SetEnvironment;
using ::testing::HasSubstr;

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

void backward_on(const torch::Device& device) {
  const auto x = torch::ones({3}, torch::device(device).requires_grad(true));
  x.sum().backward();
  EXPECT_EQ(x.grad().device(), device);
}

std::string refusal_of(std::string_view spec) {
  try {
    (void)simulate(spec);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Simulate, GivesDevicesThatTensorsLiveOn) {
  const Simulation box = simulate("2x1GiB");
  const torch::Tensor x = torch::ones({256, 1024}, box.device(1));
  EXPECT_EQ(x.device().str(), "sim:1");
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 0);
  EXPECT_EQ(box.card(1).statistics().allocated_bytes.all.current, 1 << 20);
}

TEST(Simulate, RefusesATensorThatWasLeftOnTheHostAsCudaDoes) {
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor there = torch::ones({4, 4}, box.device(0)), here = torch::ones({4, 4});
  const auto refusal = [](auto function) -> std::string {
    try {
      function();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  const auto names_both = HasSubstr("at least two devices, sim:0 and cpu!");
  EXPECT_THAT(refusal([&] { (void)(here + there); }), names_both);
  EXPECT_THAT(refusal([&] { (void)there.mm(here); }), names_both);
  EXPECT_THAT(refusal([&] { (void)torch::linear(here, there); }), names_both);
  EXPECT_THAT(refusal([&] { (void)there.index_select(0, torch::tensor({1})); }), names_both);
  EXPECT_NO_THROW((void)(there * torch::tensor(2.0))) << "a number";
  EXPECT_NO_THROW((void)there.index({torch::tensor({1, 2})})) << "an index";
  EXPECT_NO_THROW((void)torch::ones({4}).to(there)) << "a copy";
}

// ---- Off by default ----

TEST(Simulate, RegistersNothingBeforeTheFirstCall) {
  const auto what_is_there = [] {
    const std::ptrdiff_t before = threads();
    auto x = torch::ones({3}, torch::requires_grad());
    x.sum().backward();
    std::ostringstream text;
    text << at::isPrivateUse1HooksRegistered() << at::getAccelerator().has_value()
         << static_cast<int>(at::accelerator::deviceCount()) << ' ' << threads() - before;
    return text.str();
  };
  EXPECT_IN_A_NEW_PROCESS(what_is_there, "^000 0$");
}

TEST(Simulate, IsAnAcceleratorFromTheFirstCallOn) {
  const auto what_is_there = [] {
    const auto cards = [] {
      const auto& hooks = at::globalContext().getAcceleratorHooksInterface();
      return std::to_string(hooks.deviceCount()) + (hooks.isAvailable() ? " there " : " gone ");
    };
    std::string text;
    {
      const Simulation box = simulate("3x1GiB");
      EXPECT_EQ(at::getAccelerator(), c10::DeviceType::PrivateUse1);
      text = cards();
    }
    return text + cards();
  };
  EXPECT_IN_A_NEW_PROCESS(what_is_there, "^3 there 0 gone $");
}

// ---- Beside autograd, whose table of devices is made once ----

TEST(Simulate, FollowsABackwardPassOnTheCpu) {
  const auto after_a_backward_pass = [] {
    backward_on(torch::kCPU);
    const Simulation box = simulate("2x1GiB");
    backward_on(box.device(1));
    backward_on(torch::kCPU);
    return std::string(::testing::Test::HasFailure() ? "failed" : "done");
  };
  EXPECT_IN_A_NEW_PROCESS(after_a_backward_pass, "^done$");
}

// A global object that prints a mean in its destructor, for instance. Once that was a segmentation
// fault: it ran after what the library had made at its first operator was gone.
TEST(Simulate, RunsOperatorsInDestructorsOfGlobalObjects) {
  const auto to_the_end = [](Mode mode) {
    return [mode]() -> std::string {
      static Simulation* box = nullptr;
      // LibTorch's own globals are there first, and so outlive the object.
      static_cast<void>(torch::ones({2, 2}).mm(torch::ones({2, 2})));
      std::atexit([] {
        const at::Tensor x = torch::ones({64, 64}, box->device(0));
        const at::Tensor y = torch::nn::functional::softmax(x.mm(x) + 1, 1).sum();
        std::fputs(std::to_string(y.cpu().item<int>()).c_str(), stderr);
        std::_Exit(0);
      });
      box = new Simulation(simulate("RTX 4090", {.mode = mode}));
      const at::Tensor x = torch::ones({64, 64}, box->device(0));
      static_cast<void>(x.mm(x) + 1);
      std::exit(1);
    };
  };
  EXPECT_IN_A_NEW_PROCESS(to_the_end(Mode::compute), "^64$");
  EXPECT_IN_A_NEW_PROCESS(to_the_end(Mode::shape_only), "^64$");
}

TEST(Simulate, TwiceMayHaveMoreCardsTheSecondTime) {
  for (const char* spec : {"1x1GiB", "16x1GiB", "2x1GiB"}) {
    const Simulation box = simulate(spec);
    backward_on(box.device(box.cards() - 1));
  }
}

TEST(Simulate, SixteenCardsAllComputeAndAreTheMost) {
  const Simulation box = simulate("16x1GiB", {.mode = Mode::compute});
  for (int i = 0; i < 16; ++i) backward_on(box.device(i));
  EXPECT_THAT(refusal_of("17x1GiB"), HasSubstr("at most 16"));
}

// ---- One box, and its end ----

TEST(Simulate, RefusesASecondBoxBesideTheFirst) {
  Simulation box = simulate("1x1GiB");
  EXPECT_THAT(refusal_of("1x1GiB"), HasSubstr("one box of simulated cards at a time"));
  EXPECT_EQ(box.cards(), 1) << "the first is as it was";
  {
    const Simulation moved = std::move(box);
    EXPECT_EQ(moved.cards(), 1);
    EXPECT_THAT(refusal_of("1x1GiB"), HasSubstr("at a time"));
  }
  EXPECT_EQ(simulate("2x1GiB").cards(), 2);
}

TEST(Simulate, NamesTheExistingCardsWhenAnotherIsUsed) {
  const Simulation box = simulate("2x1GiB");
  for (const int index : {2, 15}) {
    const torch::Device beyond(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
    EXPECT_THROW((void)torch::empty({1}, beyond), libtorch::DeviceError);
    EXPECT_THROW((void)box.card(index), UsageError);
    EXPECT_THROW((void)card_of(beyond), UsageError);
  }
  EXPECT_THROW(c10::DeviceGuard(torch::Device(c10::DeviceType::PrivateUse1, 99)),
               libtorch::DeviceError);
  try {
    (void)box.card(2);
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sim:0 to sim:1"));
  }
}

TEST(Simulate, ItsTensorsOutliveItButOnlyToBeFreed) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    torch::Tensor x, view;
    {
      const Simulation box = simulate("1x1GiB", {.mode = mode});
      x = torch::ones({1024}, torch::device(box.device(0)).requires_grad(true));
    }
    EXPECT_THROW((void)(x + 1), libtorch::DeviceError);
    EXPECT_THROW((void)x.cpu(), libtorch::DeviceError);
    EXPECT_THROW((void)x.sum().item(), libtorch::DeviceError);
    EXPECT_THROW((void)torch::empty({1}, x.device()), libtorch::DeviceError);
    view = x.detach().view({2, 512});
    x.reset();
    view.reset();
  }
}

TEST(Simulate, RefusesTensorsOfAnEarlierBox) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    torch::Tensor old;
    {
      const Simulation first = simulate("1x1GiB", {.mode = mode});
      old = torch::ones({2}, first.device(0));
    }
    const Simulation second = simulate("1x1GiB", {.mode = mode});
    const torch::Tensor own = torch::ones({2}, second.device(0));
    EXPECT_THROW((void)(old + own), libtorch::DeviceError);
    EXPECT_THROW((void)(own + old), libtorch::DeviceError);
    EXPECT_THROW((void)old.cpu(), libtorch::DeviceError);
    EXPECT_THROW((void)own.copy_(old), libtorch::DeviceError);
    EXPECT_THROW((void)old[0].item(), libtorch::DeviceError);
  }
}

// Once a refused operator threw a plain c10::Error, and a tensor whose card was gone an error that
// `catch (const c10::Error&)` missed. Now each is both: LibTorch's, and known to be Headroom's.
TEST(Simulate, ItsRefusalsInsideAnOperatorAreLibTorchErrorsAndOperatorRefusals) {
  const Simulation box = simulate("1x1GiB");
  const auto kind_of = [](const std::function<void()>& refused) -> std::string {
    try {
      refused();
    } catch (const c10::Error& error) {
      const auto* const ours = dynamic_cast<const libtorch::OperatorRefusal*>(&error);
      return ours != nullptr ? ours->what() : "LibTorch's alone";
    }
    return "accepted";
  };
  const torch::Tensor x = torch::randn({3, 3}, box.device(0));
  const torch::Tensor rows = torch::zeros({1, 2}, torch::dtype(torch::kLong).device(box.device(0)));
  const auto sparse = torch::sparse_coo_tensor(rows, torch::randn({2}, box.device(0)), {4});
  EXPECT_THAT(kind_of([&] { (void)x.nonzero(); }), HasSubstr("aten::nonzero"));
  EXPECT_THAT(kind_of([&] { (void)sparse.mul(2).log1p(); }), HasSubstr("sparse"));
  float number = 0;
  EXPECT_THAT(kind_of([&] { (void)torch::from_blob(&number, {1}, box.device(0)); }),
              HasSubstr("then to(device)"));
  EXPECT_THAT(kind_of([&] { (void)torch::empty({1}, torch::Device("sim:5")); }),
              HasSubstr("sim:5"));
  {
    box.card(0).set_mode(Mode::compute);
    EXPECT_THAT(kind_of([&] { (void)(x + 1); }), HasSubstr("while it was shape-only"));
  }
  EXPECT_THAT([&] { (void)box.card(5); }, ::testing::Throws<UsageError>()) << "no operator";
}

TEST(Simulate, TensorsOfAnEarlierBoxDoNotCount) {
  torch::Tensor x;
  {
    const Simulation first = simulate("1x1GiB");
    x = torch::ones({1024}, first.device(0));
  }
  const Simulation second = simulate("1x1GiB");
  EXPECT_EQ(second.card(0).statistics().allocated_bytes.all.current, 0);
  x.reset();
  EXPECT_EQ(second.card(0).statistics().allocated_bytes.all.freed, 0);
}

// ---- CUDA ----

struct UsedCuda final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

TEST(Simulate, IsRefusedInAProcessThatHasUsedCuda) {
  const auto beside_cuda = [] {
    at::CUDAHooksRegistry()->Register(
        "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
          return std::make_unique<UsedCuda>();
        });
    try {
      (void)simulate("1x1GiB");
    } catch (const UnavailableError& error) {
      return error.what() + std::to_string(at::isPrivateUse1HooksRegistered());
    }
    return std::string("accepted");
  };
  EXPECT_IN_A_NEW_PROCESS(beside_cuda, "cuda:0 is in use'; try sim::in_child.*0$");
}

// ---- Cards ----

TEST(Simulate, MixesCardsAndTakesThoseOfTheCatalogueWithTheirContext) {
  const Simulation box = simulate("1x512MiB,2xRTX4090");
  ASSERT_EQ(box.cards(), 3);
  EXPECT_EQ(box.card(0).free_bytes(), 512_MiB);
  const Card& card = box.card(2);
  const gpu::CatalogueCard& known = gpu::card_named("RTX 4090");
  EXPECT_EQ(card.capacity(), known.cuda_total) << "without what the driver reserves";
  ASSERT_NE(card.options().profile, nullptr);
  EXPECT_EQ(card.free_bytes(), card.capacity() - *card.options().profile->context);
  EXPECT_EQ(card.options().name, known.name);
}

TEST(Simulate, ReadsTheAllocatorsSettingsWherePyTorchDoes) {
  const auto settings_now = [] { return simulate("1x1GiB").card(0).options().settings; };
  EXPECT_EQ(settings_now(), allocator::Settings());
  const SetEnvironment shared("PYTORCH_ALLOC_CONF", "expandable_segments:True");
  EXPECT_TRUE(settings_now().expandable_segments);
  const SetEnvironment own("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64");
  EXPECT_EQ(settings_now().max_split_size, 64_MiB);
  EXPECT_FALSE(settings_now().expandable_segments)
      << "the variable with CUDA's name hides the other";
  const Simulation box = simulate("1x1GiB", {.settings = allocator::Settings()});
  EXPECT_EQ(box.card(0).options().settings, allocator::Settings()) << "options hide both";
}

TEST(Simulate, RefusesSettingsThatPyTorchRefuses) {
  const SetEnvironment wrong("PYTORCH_CUDA_ALLOC_CONF", "max_splt_size_mb:64");
  EXPECT_THAT(refusal_of("1x1GiB"), HasSubstr("PYTORCH_CUDA_ALLOC_CONF"));
}

}  // namespace
}  // namespace headroom::sim
