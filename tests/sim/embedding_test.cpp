#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/sim/rules/families.h"
#include "sides.h"

namespace headroom::sim {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::Pair;
using torch::Tensor;

Tensor table(std::int64_t rows, std::int64_t width) {
  return (torch::arange(rows * width, at::kFloat) * 0.37F).sin().reshape({rows, width});
}
Tensor indices(std::int64_t count, std::int64_t rows) {
  return (torch::arange(count, at::kLong) * 7 + 3) % rows;
}

Computation embedding(std::int64_t count, bool by_frequency = false, std::int64_t padding = -1) {
  return [=](torch::Device device) {
    const Tensor weight = table(11, 4).to(device).set_requires_grad(true);
    const Tensor out =
        at::embedding(weight, indices(count, 11).to(device), padding, by_frequency, false);
    (out * out).sum().backward();
    return std::vector<Tensor>{out, weight.grad()};
  };
}

TEST(Embedding, GivesTheCpusNumbers) {
  expect_as_on_cpu(embedding(20));
  expect_as_on_cpu(embedding(4000));
  expect_as_on_cpu(embedding(20, true));
  expect_as_on_cpu(embedding(20, false, 3));
  expect_as_on_cpu(embedding(4000), {.rules = Rules::cpu});
}

// Above 3072 indices CUDA sorts them and sums in float: one row for each index.
TEST(Embedding, SumsManyRowsInFloatOnTheWay) {
  const auto rows_in_float = [](const Computation& computation) {
    return run_on_card(computation, {.cublas_workspaces = false}).requests;
  };
  const auto computation = [](torch::Device device) {
    const auto options = at::TensorOptions(device).dtype(at::kHalf);
    const Tensor gradient = at::zeros({4000, 4}, options);
    const Tensor where = at::zeros({4000}, options.dtype(at::kLong));
    return std::vector<Tensor>{at::embedding_dense_backward(gradient, where, 11, -1, false)};
  };
  EXPECT_THAT(rows_in_float(computation), Contains(Pair("alloc", 4000 * 4 * 4)));
  const Side cpu = run_on_card(computation, {.rules = Rules::cpu});
  EXPECT_THAT(cpu.requests, Not(Contains(Pair("alloc", 4000 * 4 * 4))));
}

struct Bag {
  std::int64_t mode = 0;
  bool scaled = false, include_last = false;
  std::int64_t padding = -1;
};

Computation bag(const Bag& b) {
  return [b](torch::Device device) {
    const Tensor weight = table(11, 4).to(device).set_requires_grad(true);
    const Tensor offsets = torch::tensor(b.include_last ? std::vector<std::int64_t>{0, 5, 5, 20}
                                                        : std::vector<std::int64_t>{0, 5, 9},
                                         at::kLong)
                               .to(device);
    const Tensor scales =
        b.scaled ? (torch::arange(20, at::kFloat) * 0.1F).to(device).set_requires_grad(true)
                 : Tensor();
    const auto [out, bags, sizes, maxima] =
        at::embedding_bag(weight, indices(20, 11).to(device), offsets, false, b.mode, false,
                          b.scaled ? std::optional<Tensor>(scales) : std::nullopt, b.include_last,
                          b.padding < 0 ? std::optional<std::int64_t>() : b.padding);
    (out * out).sum().backward();
    return std::vector<Tensor>{out, weight.grad(), b.scaled ? scales.grad() : Tensor()};
  };
}

TEST(EmbeddingBag, GivesTheCpusNumbers) {
  for (const Rules rules : {Rules::cuda, Rules::cpu}) {
    for (const std::int64_t mode : {0, 1, 2}) {
      SCOPED_TRACE(mode);
      expect_as_on_cpu(bag({.mode = mode}), {.rules = rules});
      expect_as_on_cpu(bag({.mode = mode, .include_last = true}), {.rules = rules});
    }
    expect_as_on_cpu(bag({.scaled = true}), {.rules = rules});
    expect_as_on_cpu(bag({.padding = 2}), {.rules = rules});
  }
}

// CUDA lists the bag of each of 20 indices, where the CPU's fast sums do not; the CPU keeps as many
// maxima as there are bags, 3, where CUDA keeps none. Each number has 8 bytes.
TEST(EmbeddingBag, KeepsMoreOrLessOnCudaThanOnTheCpu) {
  const auto bytes = [](Rules rules, std::int64_t mode) {
    const Simulation box = simulate("1x1GiB", {.rules = rules});
    const Tensor weight = torch::zeros({11, 4}, box.device(0));
    const Tensor where = torch::zeros({20}, weight.options().dtype(at::kLong));
    const Tensor offsets = torch::zeros({3}, where.options());
    const auto [a, b, c, d] = at::_embedding_bag(weight, where, offsets, false, mode);
    return static_cast<std::int64_t>(a.nbytes() + b.nbytes() + c.nbytes() + d.nbytes());
  };
  constexpr std::int64_t kSum = 0, kMean = 1, kMax = 2;
  EXPECT_EQ(bytes(Rules::cuda, kSum) - bytes(Rules::cpu, kSum), (20 - 3) * 8);
  EXPECT_EQ(bytes(Rules::cuda, kMean) - bytes(Rules::cpu, kMean), -3 * 8);
  EXPECT_EQ(bytes(Rules::cuda, kMax), bytes(Rules::cpu, kMax));
}

TEST(EmbeddingBag, ListsTheBagOfEachIndexOnCudaAlone) {
  const auto bag_of_each = [](torch::Device device) {
    const auto all = at::_embedding_bag(table(11, 4).to(device), indices(20, 11).to(device),
                                        torch::tensor({0, 5}, at::kLong).to(device));
    return std::vector<Tensor>{std::get<1>(all)};
  };
  EXPECT_EQ(run_on_card(bag_of_each, {}).results[0].numel(), 20);
  EXPECT_EQ(run_on_card(bag_of_each, {.rules = Rules::cpu}).results[0].numel(), 0);
}

// ---- Sparse gradients ----

std::vector<Tensor> sparse_step(torch::Device device, int passes) {
  const Tensor weight = table(11, 4).to(device).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1));
  for (int pass = 0; pass < passes; ++pass) {
    const Tensor out = at::embedding(weight, indices(20, 11).to(device), -1, false, true);
    (out * out).sum().backward();
  }
  EXPECT_TRUE(weight.grad().is_sparse());
  const Tensor values = weight.grad()._values(), where = weight.grad()._indices();
  const Tensor dense = weight.grad().to_dense();
  optimizer.step();
  return {values, where, dense, weight};
}

TEST(SparseEmbedding, StepsAsOnTheCpu) {
  expect_as_on_cpu([](torch::Device device) { return sparse_step(device, 1); });
}

// CUDA joins two gradients one after the other, the CPU merges them row by row: the sums are the
// same but for the order.
TEST(SparseEmbedding, AccumulatesAsOnCuda) {
  const auto two = [](torch::Device device) { return sparse_step(device, 2); };
  const Side card = run_on_card(two, {.mode = Mode::compute});
  EXPECT_EQ(card.results[1].sizes(), (at::IntArrayRef{1, 40}));
  EXPECT_TRUE(torch::allclose(card.results[3], run_on_cpu(two)[3]));
  EXPECT_EQ(run_on_card(two, {}).requests, card.requests);
}

// Rows for the indices that occur, not for the whole table.
TEST(SparseEmbedding, NeedsNoGradientOfTheTablesSize) {
  const Simulation box = simulate("1x1GiB");
  const Tensor weight = torch::zeros({100000, 64}, box.device(0)).set_requires_grad(true);
  const Tensor where = torch::zeros({8}, torch::TensorOptions(box.device(0)).dtype(at::kLong));
  const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
  box.card(0).reset_peaks();
  at::embedding(weight, where, -1, false, true).sum().backward();
  EXPECT_LT(box.card(0).statistics().allocated_bytes.all.peak - before, 1 << 16);
  EXPECT_EQ(weight.grad()._nnz(), 8);
}

TEST(SparseEmbedding, CoalescesIfItsIndicesAreKnown) {
  const auto coalesced = [](Mode mode, bool known = true) {
    const Simulation box = simulate("1x1GiB", {.mode = mode});
    const Tensor weight = torch::ones({5, 2}, box.device(0)).set_requires_grad(true);
    Tensor where = torch::tensor({3, 1, 3}, at::kLong).to(box.device(0));
    if (!known) where = torch::randn({3}, box.device(0)).to(at::kLong);
    at::embedding(weight, where, -1, false, true).sum().backward();
    return weight.grad().coalesce()._values().cpu();
  };
  EXPECT_EQ(coalesced(Mode::compute).sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(coalesced(Mode::shape_only).sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_THROW((void)coalesced(Mode::shape_only, false), c10::NotImplementedError);
}

TEST(SparseEmbedding, RefusesOtherOperatorsInASentence) {
  const Simulation box = simulate("1x1GiB");
  const Tensor weight = torch::ones({5, 2}, box.device(0)).set_requires_grad(true);
  const Tensor where = torch::zeros({3}, torch::TensorOptions(box.device(0)).dtype(at::kLong));
  at::embedding(weight, where, -1, false, true).sum().backward();
  try {
    (void)at::softmax(weight.grad(), 1);
    FAIL() << "it ran";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("to_dense()"));
  }
}

TEST(Embedding, RenormalisesInPlace) {
  expect_as_on_cpu([](torch::Device device) {
    Tensor weight = table(11, 4).to(device);
    at::embedding_renorm_(weight, indices(5, 11).to(device), 0.5, 2.0);
    return std::vector<Tensor>{weight};
  });
}

TEST(Embedding, OneHotNeedsTheNumberOfClasses) {
  expect_as_on_cpu([](torch::Device device) {
    return std::vector<Tensor>{at::one_hot(indices(6, 5).to(device), 5)};
  });
}

}  // namespace
}  // namespace headroom::sim
