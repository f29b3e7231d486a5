// The checker of streams: planted races, each beside the same program with its wait, on cards with
// and without data. And programs that it must not report.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/simulate.h"
#include "tests/sim/fixtures/step.h"

namespace headroom::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;
constexpr auto kCardType = c10::DeviceType::PrivateUse1;
constexpr std::int64_t kNumbers = 1 << 20;

// Two cards, three streams on the first and two on the second.
struct Scene {
  explicit Scene(Mode mode, bool check = true)
      : box(simulate("2x1GiB", {.mode = mode, .check_streams = check})) {}

  [[nodiscard]] c10::Device card(int index) const { return box.device(index); }
  // Ones that all streams may use.
  [[nodiscard]] Tensor ready(int index = 0) const {
    Tensor made = torch::ones({kNumbers}, card(index));
    guard.synchronizeDevice(card(index).index());
    return made;
  }
  static Tensor pinned() {
    return torch::ones({kNumbers}, torch::TensorOptions().pinned_memory(true));
  }
  static c10::Event record(c10::Stream stream) {
    c10::Event event(kCardType);
    event.record(stream);
    return event;
  }
  static void wait(c10::Stream waiting, c10::Stream for_this) { record(for_this).block(waiting); }
  template <typename Do>
  static auto on(c10::Stream stream, Do&& act) {
    const c10::StreamGuard scope(stream);
    return act();
  }

  Simulation box;
  c10::impl::VirtualGuardImpl guard{kCardType};
  c10::Stream main = guard.getDefaultStream(card(0));
  c10::Stream side = guard.getNewStream(card(0), 0);
  c10::Stream other = guard.getNewStream(card(0), 0);
  c10::Stream main_of_1 = guard.getDefaultStream(card(1));
  c10::Stream side_of_1 = guard.getNewStream(card(1), 0);
};

// The program forgets a wait unless `right`.
struct Race {
  std::string name, first, second;  // the operators in the error
  std::function<void(Scene&, bool right)> program;
};

const std::vector<Race>& races() {
  static const std::vector<Race> all{
      {"ReadsWhatIsWritten", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.main, s.side);
         (void)(x * 2);
       }},
      {"ReadsAResult", "aten::exp", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         if (right) s.wait(s.main, s.side);
         (void)(y * 2);
       }},
      {"WritesWhatIsRead", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         if (right) s.wait(s.main, s.side);
         x.fill_(2);
       }},
      {"WritesWhatIsWritten", "aten::fill_.Scalar", "aten::zero_",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.main, s.side);
         x.zero_();
       }},
      {"UsesABatchThatIsStillCopied", "aten::copy_", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor batch = s.ready(), host = s.pinned();
         s.on(s.side, [&] { batch.copy_(host, /*non_blocking=*/true); });
         if (right) s.wait(s.main, s.side);
         (void)(batch * 2);
       }},
      {"OverwritesWhatIsStillCopiedToTheHost", "aten::copy_", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         const Tensor x = s.ready(), host = s.pinned();
         s.on(s.side, [&] { host.copy_(x, /*non_blocking=*/!right); });
         x.fill_(2);
       }},
      {"ReusesMemoryWithoutRecordStream", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         if (right) x.record_stream(s.side);
         x.reset();
         torch::empty({kNumbers}, s.card(0)).fill_(1);
       }},
      {"ReusesMemoryForAResult", "aten::exp", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         Tensor x = s.ready();
         const Tensor z = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         if (right) x.record_stream(s.side);
         x.reset();
         (void)(z * 2);
       }},
      {"ReusesAPartOfTheMemory", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         x.reset();
         const Tensor before = torch::empty({kNumbers / 2}, s.card(0));
         if (right) s.wait(s.main, s.side);
         torch::empty({kNumbers / 2}, s.card(0)).fill_(1);
       }},
      {"RecordsAStreamAfterwardsForALaterOwner", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         Tensor x = s.ready();
         Tensor y = s.on(s.side, [&] { return x.exp(); });
         x.reset();
         Tensor between = torch::empty({kNumbers}, s.card(0));  // never used itself
         if (right) between.record_stream(s.side);
         between.reset();
         torch::empty({kNumbers}, s.card(0)).fill_(1);
       }},
      {"RecordsTheStreamThatOwnsTheMemory", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         x.record_stream(right ? s.side : s.main);
         x.reset();
         torch::empty({kNumbers}, s.card(0)).fill_(1);
       }},
      {"UsesNewMemoryBeforeTheStreamItIsFrom", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         s.ready().exp();  // both are freed at once
         const Tensor x = torch::empty({kNumbers}, s.card(0));
         const Tensor y = torch::empty({kNumbers}, s.card(0));
         if (right) s.wait(s.side, s.main);
         s.on(s.side, [&] { x.fill_(1), y.fill_(1); });
       }},
      {"RecordsTheEventTooEarly", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         auto event = s.record(s.side);
         s.on(s.side, [&] { x.fill_(2); });
         if (right) event.record(s.side);
         event.block(s.main);
         (void)(x * 2);
       }},
      {"RecordsTheEventOnAnotherStream", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         s.record(right ? s.side : s.other).block(s.main);
         (void)(x * 2);
       }},
      {"LetsTheWrongStreamWait", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         s.wait(right ? s.main : s.other, s.side);
         (void)(x * 2);
       }},
      {"WaitsForAStreamThatHasNotWaited", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.other, s.side);
         s.wait(s.main, s.other);
         (void)(x * 2);
       }},
      {"LetsTheHostWaitForTheWrongStream", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         (right ? s.side : s.other).synchronize();
         (void)(x * 2);
       }},
      {"ReadsAnItemThatIsStillWritten", "aten::fill_.Scalar", "aten::_local_scalar_dense",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.main, s.side);
         (void)x[3].item<float>();
       }},
      {"WritesThroughAView", "aten::exp", "aten::fill_.Scalar",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.view({-1, 16}).t().exp(); });
         if (right) s.wait(s.main, s.side);
         x.slice(0, 5, 100).fill_(2);
       }},
      // LibTorch turns most in-place operators into those with an out argument.
      {"ChangesInPlace", "aten::exp", "aten::mul.out",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         const Tensor y = s.on(s.side, [&] { return x.exp(); });
         if (right) s.wait(s.main, s.side);
         x.mul_(2);
       }},
      {"WritesIntoAnOutArgument", "aten::add.out", "aten::exp",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         Tensor out = s.ready();
         s.on(s.side, [&] { torch::add_out(out, x, x); });
         if (right) s.wait(s.main, s.side);
         (void)out.exp();
       }},
      {"GrowsMemoryThatIsStillWritten", "aten::fill_.Scalar", "aten::resize_",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.main, s.side);
         x.resize_({2 * kNumbers});
       }},
      {"ReadsOneOfManyThatChange", "aten::_foreach_add_.Scalar", "aten::exp",
       [](Scene& s, bool right) {
         const std::vector<Tensor> many{s.ready(), s.ready(), s.ready()};
         s.on(s.side, [&] { at::_foreach_add_(many, 1); });
         if (right) s.wait(s.main, s.side);
         (void)many[1].exp();
       }},
      {"ReadsAParameterDuringItsUpdate", "aten::_fused_adamw_", "aten::exp",
       [](Scene& s, bool right) {
         const std::vector<Tensor> p{s.ready(), s.ready()}, g{s.ready(), s.ready()},
             m{s.ready(), s.ready()}, v{s.ready(), s.ready()},
             steps{torch::ones({}, s.card(0)), torch::ones({}, s.card(0))};
         s.guard.synchronizeDevice(0);
         s.on(s.side, [&] {
           at::_fused_adamw_(p, g, m, v, {}, steps, 1e-3, 0.9, 0.99, 0.01, 1e-8, false, false);
         });
         if (right) s.wait(s.main, s.side);
         (void)p[1].exp();
       }},
      {"UsesGradientsOnAnotherStreamThanBackwards", "aten::mul.Tensor", "aten::exp",
       [](Scene& s, bool right) {
         const Tensor x = s.ready().requires_grad_();
         (x * 2).sum().backward();
         if (right) s.wait(s.side, s.main);
         s.on(s.side, [&] { (void)x.grad().exp(); });
       }},
      {"PassesAGradientThatIsStillWritten", "aten::fill_.Scalar", "aten::mul.Tensor",
       [](Scene& s, bool right) {
         const Tensor x = s.ready().requires_grad_(), gradient = s.ready();
         const Tensor y = x * 2;
         s.on(s.side, [&] { gradient.fill_(2); });
         if (right) s.wait(s.main, s.side);
         y.backward(gradient);
       }},
      {"CopiesToAnotherCardWhatIsStillWritten", "aten::fill_.Scalar", "aten::copy_",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         s.on(s.side, [&] { x.fill_(2); });
         if (right) s.wait(s.main, s.side);
         (void)x.to(s.card(1));
       }},
      {"ReadsOnAnotherCardWhatIsStillCopied", "aten::copy_", "aten::exp",
       [](Scene& s, bool right) {
         const Tensor x = s.ready(), there = s.ready(1);
         there.copy_(x);
         if (right) s.wait(s.side_of_1, s.main_of_1);
         s.on(s.side_of_1, [&] { (void)there.exp(); });
       }},
      {"OverwritesABufferOfAPrefetchTooEarly", "aten::exp", "aten::copy_",
       [](Scene& s, bool right) {
         const Tensor host = s.pinned();
         const std::vector<Tensor> buffers{s.ready(), s.ready()};
         for (std::size_t i = 0; i < 4; ++i) {
           if (right) s.wait(s.side, s.main);
           s.on(s.side, [&] { buffers[i % 2].copy_(host, /*non_blocking=*/true); });
           s.wait(s.main, s.side);
           (void)buffers[i % 2].exp();
         }
       }},
      {"HandsWorkToAThread", "aten::fill_.Scalar", "aten::exp",
       [](Scene& s, bool right) {
         const Tensor x = s.ready();
         std::thread([&] {
           s.on(s.side, [&] { x.fill_(2); });
           if (right) s.side.synchronize();
         }).join();
         (void)x.exp();
       }},
  };
  return all;
}

class PlantedRace : public ::testing::TestWithParam<std::tuple<Race, Mode>> {
 protected:
  static const Race& race() { return std::get<0>(GetParam()); }
  static void run(bool right) {
    Scene scene(std::get<1>(GetParam()));
    race().program(scene, right);
  }
};

TEST_P(PlantedRace, IsFoundByBothOperators) {
  try {
    run(false);
    FAIL() << "not found";
  } catch (const libtorch::DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[sim] expected " + race().second + " on "),
                                    HasSubstr(" to wait for " + race().first + " on ")));
  }
}

TEST_P(PlantedRace, IsGoneWithTheWait) {
  EXPECT_NO_THROW(run(true));
}

INSTANTIATE_TEST_SUITE_P(StreamChecker, PlantedRace,
                         ::testing::Combine(::testing::ValuesIn(races()),
                                            ::testing::Values(Mode::shape_only, Mode::compute)),
                         [](const auto& with) {
                           return std::get<0>(with.param).name +
                                  (std::get<1>(with.param) == Mode::compute ? "_computed" : "");
                         });

TEST(StreamChecker, SaysWhatToDo) {
  Scene s(Mode::shape_only);
  Tensor x = s.ready();
  const Tensor y = s.on(s.side, [&] { return x.exp(); });
  const std::string side = "stream " + std::to_string(s.side.id()) + " of sim:0";
  const auto said = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const libtorch::DeviceError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(said([&] { (void)(y * 2); }),
            "[sim] expected aten::mul.Tensor on the default stream of sim:0 to wait for aten::exp "
            "on " +
                side +
                ", which writes the same memory, received 'no wait between them'; try an "
                "event recorded on " +
                side +
                " after aten::exp, and the default stream of sim:0 "
                "waiting for it before aten::mul.Tensor");
  x.reset();
  EXPECT_EQ(said([&] { torch::empty({kNumbers}, s.card(0)).fill_(1); }),
            "[sim] expected aten::fill_.Scalar on the default stream of sim:0 to wait for "
            "aten::exp on " +
                side +
                ", which used the same memory for a tensor that has been "
                "freed, received 'no wait between them'; try record_stream(" +
                side +
                ") on the first "
                "tensor before it is freed, or a wait for " +
                side);
}

TEST(StreamChecker, IsOffUnlessAskedFor) {
  Scene scene(Mode::shape_only, /*check=*/false);
  for (const Race& race : races()) EXPECT_NO_THROW(race.program(scene, false)) << race.name;
}

TEST(StreamChecker, ReportsNoTrainingStep) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Scene s(mode);
    fixtures::Step step(s.card(0));
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(step.run());
  }
}

// Autograd runs each node on its forward's stream, and lets the streams wait for each other.
TEST(StreamChecker, ReportsNoBackwardOverTwoStreamsAndCards) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    Scene s(mode);
    const Tensor x = s.ready().requires_grad_(), w = s.ready(1).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      s.wait(s.side, s.main);
      const Tensor y = s.on(s.side, [&] { return x.exp() * x; });
      const Tensor z = x.sin();
      s.wait(s.main, s.side);
      const Tensor loss = ((y + z).to(s.card(1)) * w).sum();
      y.record_stream(s.main);
      EXPECT_NO_THROW(loss.backward());
      EXPECT_NO_THROW((void)x.grad().exp()) << "the caller's stream has waited for the leaves";
      EXPECT_NO_THROW((void)w.grad().exp());
    }
  }
}

// CUDA's copy runs on the source's stream and lets both wait for each other.
TEST(StreamChecker, ReportsNoCopyBetweenCards) {
  Scene s(Mode::compute);
  const Tensor x = s.ready(), there = s.ready(1);
  there.fill_(2);
  EXPECT_NO_THROW(there.copy_(x));
  EXPECT_NO_THROW((void)there.exp());
}

TEST(StreamChecker, TakesReadsOnTwoStreamsForWhatTheyAre) {
  Scene s(Mode::compute);
  const Tensor x = s.ready();
  const Tensor y = s.on(s.side, [&] { return x.exp(); });
  EXPECT_NO_THROW((void)x.exp());
}

// As on CUDA, where these wait until the stream's work is done.
TEST(StreamChecker, TakesWhatWaitsOnTheHostForAWait) {
  const std::vector<std::function<void(Scene&, const Tensor&)>> waits{
      [](Scene&, const Tensor& x) { (void)x.sum().item<float>(); },
      [](Scene&, const Tensor& x) { (void)x.cpu(); },
      [](Scene&, const Tensor& x) { x.copy_(torch::ones({kNumbers})); },
      [](Scene&, const Tensor& x) { torch::empty({kNumbers}).copy_(x, true); },
      [](Scene&, const Tensor& x) { (void)torch::equal(x, x); },
      [](Scene& s, const Tensor&) { s.guard.synchronizeDevice(0); },
      [](Scene& s, const Tensor&) { s.side.synchronize(); },
      [](Scene& s, const Tensor&) { (void)s.side.query(); },
      [](Scene& s, const Tensor&) { s.record(s.side).synchronize(); },
      [](Scene& s, const Tensor&) { (void)s.record(s.side).query(); },
      [](Scene& s, const Tensor&) {
        (void)torch::empty({kNumbers}, s.card(0));
        s.box.card(0).empty_cache();
      },
  };
  for (std::size_t i = 0; i < waits.size(); ++i) {
    Scene s(Mode::compute);
    const Tensor x = s.ready();
    s.on(s.side, [&] {
      x.fill_(2);
      waits[i](s, x);
    });
    EXPECT_NO_THROW((void)x.exp()) << i;
  }
}

// A wait counts for what the stream does next, on memory that was free then, too.
TEST(StreamChecker, ReusesMemoryOfAStreamThatWasWaitedFor) {
  Scene s(Mode::compute);
  Tensor x = s.ready();
  const Tensor y = s.on(s.side, [&] { return x.exp(); });
  s.wait(s.main, s.side);
  x.reset();
  EXPECT_NO_THROW(torch::empty({kNumbers}, s.card(0)).fill_(1));
}

}  // namespace
}  // namespace headroom::sim
