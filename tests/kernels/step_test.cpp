// The arithmetic of an optimizer's step in few bits: random numbers, rounding, codes, and each
// variant of the loops beside the plain one.
#include "headroom/kernels/step.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "headroom/kernels/detail/isa.h"
#include "headroom/kernels/detail/philox.h"
#include "headroom/kernels/detail/round.h"
#include "headroom/kernels/detail/state_codes.h"
#include "headroom/kernels/detail/step_work.h"
#include "headroom/kernels/detail/threads.h"

namespace headroom::kernels {
namespace {

using at::Tensor;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<Isa> variants() {
  std::vector<Isa> all{Isa::plain};
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (has(isa)) all.push_back(isa);
  return all;
}

// ---- Random numbers

// Source: Random123 1.14, tests/kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, GivesRandom123sKnownAnswers) {
  const auto words = [](std::initializer_list<std::uint32_t> of, std::uint64_t key) {
    detail::Words counter{};
    std::copy(of.begin(), of.end(), counter.word);
    const detail::Words result = detail::philox(counter, key);
    return std::vector<std::uint32_t>(result.word, result.word + 4);
  };
  using testing::ElementsAre;
  EXPECT_THAT(words({0, 0, 0, 0}, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(words({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

// ---- Rounding

// The mean of all 65,536 roundings, as a float.
template <typename To>
double mean_rounded(float x, To (*round)(float, std::uint32_t)) {
  double sum = 0;
  for (std::uint32_t random = 0; random < 65536; ++random)
    sum += static_cast<double>(to_float(round(x, random)));
  return sum / 65536;
}

TEST(StochasticRounding, IsRightOnAverage) {
  for (const float x : {1.001F, -3.14159F, 1e-3F, 6.1e-5F, -6.2e-5F, 3e-7F, 1234.5F}) {
    EXPECT_NEAR(mean_rounded(x, &detail::to_bf16_by), static_cast<double>(x),
                std::abs(static_cast<double>(x)) * 1e-7);
    // A half keeps 13 bits fewer than a float; what lies below 2^-40 is cut off.
    EXPECT_NEAR(mean_rounded(x, &detail::to_half_by), static_cast<double>(x),
                std::abs(static_cast<double>(x)) * 1e-7 + 1e-12);
  }
}

TEST(StochasticRounding, LeavesAloneWhat16BitsHold) {
  for (const std::uint32_t random : {0U, 1U, 0x7fffU, 0xffffU}) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float as_half = to_float(Half{static_cast<std::uint16_t>(bits)});
      const float as_bf16 = to_float(Bf16{static_cast<std::uint16_t>(bits)});
      if (!std::isnan(as_half)) {
        ASSERT_EQ(detail::to_half_by(as_half, random).bits, bits);
      }
      if (!std::isnan(as_bf16)) {
        ASSERT_EQ(detail::to_bf16_by(as_bf16, random).bits, bits);
      }
    }
    EXPECT_TRUE(std::isnan(to_float(detail::to_half_by(NAN, random))));
    EXPECT_TRUE(std::isnan(to_float(detail::to_bf16_by(NAN, random))));
  }
}

// ---- Versions

TEST(Step, CountsWhatItWrote) {
  const auto tensor = [] { return at::ones({300}); };
  const StepLists lists{.parameters = {tensor()}, .gradients = {tensor()}, .steps = {at::ones({})}};
  const Tensor buffer = tensor();
  const auto start = buffer._version();
  sgd_(lists, {buffer}, {.momentum = 0.9});
  EXPECT_EQ(lists.parameters[0]._version(), start + 1);
  EXPECT_EQ(buffer._version(), start + 1);
  EXPECT_EQ(lists.gradients[0]._version(), start);
  StepLists scaled = lists;
  scaled.scale = at::ones({}) * 2;
  adamw_(scaled, {tensor()}, {tensor()}, {});
  EXPECT_EQ(lists.parameters[0]._version(), start + 2);
  EXPECT_EQ(lists.gradients[0]._version(), start + 1);
}

// ---- Threads

TEST(ShareOut, TakesEachNumberOnceOnAllThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::vector<int> taken(1000);
  std::set<std::thread::id> threads;
  detail::share_out(1000, 10, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    for (std::int64_t i = begin; i < end; ++i) ++taken[static_cast<std::size_t>(i)];
  });
  at::set_num_threads(before);
  EXPECT_THAT(taken, testing::Each(1));
#if defined(__clang__) || defined(__SANITIZE_THREAD__)
  EXPECT_LE(threads.size(), 2);  // clang may have no libomp
#else
  EXPECT_EQ(threads.size(), 2);
#endif
}

// ---- Codes

// The nearest of the table for a number between two of its bounds.
void expect_nearest(const DynamicCodes& codes, int last, std::uint32_t bits, std::uint8_t code) {
  const auto x = static_cast<double>(float_of(bits));
  const auto distance = [&](int i) {
    return i < 0 || i > last ? kInfinite : std::abs(static_cast<double>(codes.value[i]) - x);
  };
  ASSERT_LE(int{code}, last);
  ASSERT_LE(distance(code), std::min(distance(code - 1), distance(code + 1))) << x;
}

void expect_nearest(const DynamicCodes& codes, int last, std::uint32_t from, std::uint32_t to,
                    std::uint32_t stride) {
  std::vector<float> numbers(256);
  std::vector<std::uint8_t> found(256);
  for (std::uint64_t first = from; first <= to; first += 256ULL * stride) {
    for (std::uint32_t i = 0; i < 256; ++i)
      numbers[i] = float_of(std::min(static_cast<std::uint32_t>(first) + i * stride, to));
    detail::step_loops().nearest(codes, numbers.data(), found.data());
    for (std::size_t i = 0; i < 256; ++i)
      expect_nearest(codes, last, bits_of(numbers[i]), found[i]);
  }
}

struct Table {
  const DynamicCodes& codes;
  int last;
  bool is_signed;
};
const Table kTables[] = {{kSignedCodes, 255, true},
                         {kUnsignedCodes, 255, false},
                         {detail::kSigned4, 15, true},
                         {detail::kUnsigned4, 15, false}};
constexpr std::uint32_t kOne = 0x3f800000, kNegative = 0x80000000;

TEST(StateCodes, AreTheNearestOnes) {
  for (const Isa isa : variants()) {
    const IsaScope scope(isa);
    for (const Table& table : kTables) {
      expect_nearest(table.codes, table.last, 0, kOne, 4999);
      if (table.is_signed)
        expect_nearest(table.codes, table.last, kNegative, kNegative + kOne, 4999);
      for (int i = 0; i < table.last; ++i) {
        const std::uint32_t bound = bits_of(table.codes.above[i]);
        expect_nearest(table.codes, table.last, bound - 128, bound + 127, 1);
      }
    }
  }
}

// Source: torchao's quant_utils.create_dynamic_map(True, 3, 4), and torch.linspace(0, 1, 17)[1:].
TEST(StateCodes, Of4BitsAreThePublishedOnes) {
  EXPECT_THAT(std::vector<float>(detail::kSigned4.value, detail::kSigned4.value + 16),
              testing::Pointwise(testing::FloatEq(), {-0.8875, -0.6625, -0.4375, -0.2125, -0.0775,
                                                      -0.0325, -0.0055, 0.0, 0.0055, 0.0325, 0.0775,
                                                      0.2125, 0.4375, 0.6625, 0.8875, 1.0}));
  EXPECT_EQ(detail::kUnsigned4.value[0], 1.0F / 16);
  EXPECT_EQ(detail::kUnsigned4.value[15], 1.0F);
}

// ---- Steps

struct Steps {
  at::ScalarType type = at::kFloat;
  int bits = 8;  // 0: plain AdamW, 1: SGD
  Rounding rounding = {};
  std::int64_t count = 5000;
  int steps = 3;
};

// Parameters and states after some steps.
Tensors after(const Steps& run) {
  torch::manual_seed(5);
  const auto zeros = [&](std::int64_t count, at::ScalarType type) {
    return Tensors{torch::zeros({count}, type)};
  };
  StepLists lists{.parameters = {torch::randn({run.count}).to(run.type)},
                  .steps = {torch::zeros({})},
                  .numbers = {3}};
  CompactStates states{.bits = run.bits};
  if (run.bits > 1) {
    states.first = states.second = zeros(code_bytes(run.count, run.bits), at::kByte);
    states.second = zeros(code_bytes(run.count, run.bits), at::kByte);
    states.first_scales = zeros(code_blocks(run.count, run.bits), at::kFloat);
    states.second_scales = zeros(code_blocks(run.count, run.bits), at::kFloat);
  } else {
    states.first = zeros(run.count, run.type), states.second = zeros(run.count, run.type);
  }
  for (int step = 0; step < run.steps; ++step) {
    lists.gradients = {(torch::randn({run.count}) * 0.01).to(run.type)};
    lists.steps[0].add_(1);
    if (run.bits > 1)
      compact_adamw_(lists, states, {}, run.rounding);
    else if (run.bits == 0)
      adamw_(lists, states.first, states.second, {}, run.rounding);
    else
      sgd_(lists, states.first, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
           run.rounding);
  }
  Tensors all = lists.parameters;
  for (const Tensors* of :
       {&states.first, &states.second, &states.first_scales, &states.second_scales})
    all.insert(all.end(), of->begin(), of->end());
  return all;
}

void expect_same(const Tensors& ours, const Tensors& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::equal(ours[i].view(at::kByte), theirs[i].view(at::kByte))) << "tensor " << i;
}

TEST(Step, GivesTheSameBitsWithEachInstructionSet) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int bits : {0, 1, 4, 8})
      for (const std::int64_t count : {1, 127, 128, 129, 255, 256, 257, 1000, 40000}) {
        const Steps run{type, bits, {.stochastic = count % 2 == 1, .seed = 7}, count};
        const Tensors plain = [&] {
          const IsaScope scope(Isa::plain);
          return after(run);
        }();
        for (const Isa isa : variants()) {
          const IsaScope scope(isa);
          expect_same(after(run), plain);
        }
      }
}

TEST(Step, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const int bits : {0, 1, 4, 8}) {
    const Steps run{at::kBFloat16, bits, {.stochastic = true, .seed = 7}, 300'001};
    at::set_num_threads(1);
    const Tensors alone = after(run);
    at::set_num_threads(3);
    expect_same(after(run), alone);
  }
  at::set_num_threads(threads);
}

TEST(Step, DrawsOtherBitsForAnotherSeed) {
  const Steps run{at::kBFloat16, 0, {.stochastic = true, .seed = 7}};
  Steps other = run;
  other.rounding.seed = 8;
  expect_same(after(run), after(run));
  EXPECT_FALSE(at::equal(after(run)[0], after(other)[0]));
}

// Two numbers a byte, the first one in the high half: the largest gets code 15, 0 gets code 7.
TEST(Step, PacksTheFirstOf4BitsHigh) {
  Tensor gradient = torch::zeros({4});
  gradient[0] = 1;
  const StepLists lists{.parameters = {torch::zeros({4})},
                        .gradients = {gradient},
                        .steps = {torch::ones({})},
                        .numbers = {0}};
  const auto zeros = [](std::int64_t count, at::ScalarType type) {
    return Tensors{torch::zeros({count}, type)};
  };
  const CompactStates states{4, zeros(2, at::kByte), zeros(2, at::kByte), zeros(1, at::kFloat),
                             zeros(1, at::kFloat)};
  compact_adamw_(lists, states, {});
  EXPECT_EQ(states.first[0][0].item<int>(), 0xf7);
  EXPECT_EQ(states.first[0][1].item<int>(), 0x77);
  EXPECT_EQ(states.second[0][0].item<int>(), 0xf0);
  EXPECT_FLOAT_EQ(states.first_scales[0][0].item<float>(), 0.1F);
  EXPECT_FLOAT_EQ(states.second_scales[0][0].item<float>(), 0.001F);
}

TEST(Step, IsSkippedAndUnscaledAsInTheFusedForms) {
  for (const bool is_skipped : {false, true}) {
    Tensor gradient = torch::randn({300}) * 8;
    const Tensor before = gradient.clone(), parameter = torch::randn({300});
    const Tensor start = parameter.clone();
    StepLists lists{.parameters = {parameter},
                    .gradients = {gradient},
                    .steps = {torch::ones({})},
                    .numbers = {0},
                    .scale = torch::full({1}, 8.F),
                    .not_finite = torch::full({1}, is_skipped ? 1.F : 0.F)};
    adamw_(lists, {torch::zeros({300})}, {torch::zeros({300})}, {});
    EXPECT_TRUE(at::equal(gradient, is_skipped ? before : before / 8));
    EXPECT_EQ(at::equal(parameter, start), is_skipped);
  }
}

TEST(Step, KeepsNotANumberVisible) {
  Tensor gradient = torch::zeros({512});
  gradient[300] = NAN;
  const StepLists lists{.parameters = {torch::ones({512})},
                        .gradients = {gradient},
                        .steps = {torch::ones({})},
                        .numbers = {0}};
  const auto zeros = [](std::int64_t count, at::ScalarType type) {
    return Tensors{torch::zeros({count}, type)};
  };
  const CompactStates states{8, zeros(512, at::kByte), zeros(512, at::kByte), zeros(2, at::kFloat),
                             zeros(2, at::kFloat)};
  compact_adamw_(lists, states, {});
  EXPECT_FALSE(states.first_scales[0].isnan()[0].item<bool>());
  EXPECT_TRUE(states.first_scales[0].isnan()[1].item<bool>());
  EXPECT_TRUE(lists.parameters[0][300].isnan().item<bool>());
}

TEST(Step, RefusesTensorsOfOtherShapes) {
  const auto lists = [](const Tensor& parameter, const Tensor& gradient) {
    return StepLists{.parameters = {parameter},
                     .gradients = {gradient},
                     .steps = {torch::ones({})},
                     .numbers = {0}};
  };
  const Tensor x = torch::zeros({6, 4});
  EXPECT_THROW(sgd_(lists(x, torch::zeros({4, 6}).t()), {}, {}), c10::Error);
  EXPECT_THROW(sgd_(lists(x, torch::zeros({6, 4}, at::kHalf)), {}, {}), c10::Error);
  EXPECT_THROW(sgd_(lists(x.to(at::kDouble), x.to(at::kDouble)), {}, {}), c10::Error);
  EXPECT_THROW(sgd_(lists(x, x), {}, {.momentum = 0.9}), c10::Error);
  EXPECT_THROW(adamw_(lists(x, x), {x.to(at::kHalf)}, {x}, {}), c10::Error);
  EXPECT_THROW(sgd_(lists(x.to(at::kMeta), torch::zeros({4}).to(at::kMeta)), {}, {}), c10::Error);
}

}  // namespace
}  // namespace headroom::kernels
