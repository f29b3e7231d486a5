#include "tests/nets/gradcheck.h"

#include <gmock/gmock.h>

#include <ostream>

#include "headroom/libtorch/on.h"
#include "headroom/sim/simulate.h"
#include "tests/nets/layers.h"

namespace headroom::nets {
namespace {

namespace F = torch::nn::functional;
using Tensors = std::vector<Tensor>;

// A function of the numbers in tensors of these sizes.
struct Checked {
  std::string name;
  std::vector<std::vector<std::int64_t>> sizes;
  std::function<Tensor(const Tensors&)> run;
};
void PrintTo(const Checked& checked, std::ostream* out) {
  *out << checked.name;
}

Tensor whole(std::initializer_list<std::int64_t> numbers, const Tensor& beside) {
  return torch::tensor(c10::IntArrayRef(numbers.begin(), numbers.size()), torch::kLong)
      .to(beside.device());
}

std::vector<Checked> functions() {
  return {
      {"add_broadcast", {{3, 4}, {4}}, [](const Tensors& t) { return t[0] + 2 * t[1]; }},
      {"tanh", {{3, 4}}, [](const Tensors& t) { return t[0].tanh(); }},
      {"gelu", {{3, 4}}, [](const Tensors& t) { return torch::gelu(t[0]); }},
      {"silu", {{3, 4}}, [](const Tensors& t) { return torch::silu(t[0]); }},
      {"pow_rsqrt", {{3, 4}}, [](const Tensors& t) { return (t[0].pow(2) + 1).rsqrt(); }},
      {"where", {{6}}, [](const Tensors& t) { return torch::where(t[0] > 0.5, t[0].exp(), t[0]); }},
      {"softmax", {{3, 4}}, [](const Tensors& t) { return t[0].softmax(-1); }},
      {"logsumexp", {{3, 4}}, [](const Tensors& t) { return t[0].logsumexp(1); }},
      {"cumsum", {{3, 4}}, [](const Tensors& t) { return t[0].cumsum(1); }},
      {"norm", {{3, 4}}, [](const Tensors& t) { return t[0].norm(2, {1}); }},
      {"var", {{3, 4}}, [](const Tensors& t) { return t[0].var(1); }},
      {"amax", {{3, 4}}, [](const Tensors& t) { return t[0].amax(1); }},
      {"bmm", {{2, 3, 4}, {2, 4, 2}}, [](const Tensors& t) { return torch::bmm(t[0], t[1]); }},
      {"linear",
       {{3, 4}, {2, 4}, {2}},
       [](const Tensors& t) { return torch::linear(t[0], t[1], t[2]); }},
      {"einsum",
       {{3, 4}, {4, 2}},
       [](const Tensors& t) {
         return torch::einsum("ij,jk->ki", {t[0], t[1]});
       }},
      {"inverse",
       {{3, 3}},
       [](const Tensors& t) {
         return torch::linalg_inv(t[0] + 3 * torch::eye(3, t[0].options()));
       }},
      {"cholesky",
       {{3, 3}},
       [](const Tensors& t) {
         return torch::linalg_cholesky(t[0].matmul(t[0].t()) + torch::eye(3, t[0].options()));
       }},
      {"layer_norm",
       {{3, 4}, {4}, {4}},
       [](const Tensors& t) { return torch::layer_norm(t[0], {4}, t[1], t[2]); }},
      {"group_norm",
       {{2, 4, 3}, {4}, {4}},
       [](const Tensors& t) { return torch::group_norm(t[0], 2, t[1], t[2]); }},
      {"batch_norm",
       {{3, 2, 4}, {2}, {2}},
       [](const Tensors& t) {
         return torch::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, true);
       }},
      {"conv2d",
       {{1, 2, 5, 5}, {3, 2, 3, 3}, {3}},
       [](const Tensors& t) { return torch::conv2d(t[0], t[1], t[2], 2, 1); }},
      {"conv_transpose2d",
       {{1, 2, 3, 3}, {2, 2, 3, 3}, {2}},
       [](const Tensors& t) { return torch::conv_transpose2d(t[0], t[1], t[2], 2); }},
      {"max_pool2d", {{1, 2, 4, 4}}, [](const Tensors& t) { return torch::max_pool2d(t[0], 2); }},
      {"adaptive_avg_pool2d",
       {{1, 2, 5, 5}},
       [](const Tensors& t) {
         return torch::adaptive_avg_pool2d(t[0], {2, 2});
       }},
      {"upsample",
       {{1, 2, 3, 3}},
       [](const Tensors& t) {
         return torch::upsample_bilinear2d(t[0], {5, 5}, false);
       }},
      {"embedding",
       {{5, 3}},
       [](const Tensors& t) {
         return torch::embedding(t[0], whole({4, 0, 4}, t[0]));
       }},
      {"index_select",
       {{5, 3}},
       [](const Tensors& t) {
         return t[0].index_select(0, whole({1, 1, 3}, t[0]));
       }},
      {"index_add",
       {{5, 3}, {2, 3}},
       [](const Tensors& t) {
         return t[0].index_add(0, whole({4, 4}, t[0]), t[1]);
       }},
      {"cat_chunk",
       {{2, 4}, {2, 4}},
       [](const Tensors& t) {
         return torch::cat({t[0], t[1] * t[1]}, 1).chunk(2, 1)[1] * t[0];
       }},
      {"attention",
       {{1, 3, 4}, {1, 3, 4}, {1, 3, 4}},
       [](const Tensors& t) { return attention(t[0], t[1], t[2], 2, true); }},
      {"cross_entropy",
       {{3, 4}},
       [](const Tensors& t) {
         return torch::cross_entropy_loss(t[0], whole({0, 3, 1}, t[0]));
       }},
      {"binary_cross_entropy",
       {{3, 4}, {3, 4}},
       [](const Tensors& t) { return torch::binary_cross_entropy_with_logits(t[0], t[1]); }},
      {"checkpointed",
       {{3, 4}},
       [](const Tensors& t) {
         return checkpointed([](const Tensor& x) { return (x * x).sin(); }, t[0]);
       }},
  };
}

Tensor random_on(c10::Device device, c10::IntArrayRef sizes) {
  return torch::rand(sizes, torch::kDouble).to(device);
}

class Gradcheck : public testing::TestWithParam<Checked> {};

TEST_P(Gradcheck, PassesOnACard) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  torch::manual_seed(3);
  Tensors inputs;
  for (const auto& sizes : GetParam().sizes) inputs.push_back(random_on(box.device(0), sizes));
  EXPECT_EQ(gradcheck([&] { return GetParam().run(inputs); }, inputs), "");
}

INSTANTIATE_TEST_SUITE_P(Functions, Gradcheck, testing::ValuesIn(functions()),
                         [](const auto& instance) { return instance.param.name; });

// ---- Modules: the input and all parameters

template <typename Module, typename Forward>
std::string gradcheck_module(Module module, c10::IntArrayRef sizes, const Forward& forward) {
  const c10::Device device = module->parameters()[0].device();
  Tensors inputs = module->parameters();
  inputs.push_back(random_on(device, sizes));
  const Tensor x = inputs.back();
  return gradcheck([&] { return forward(module, x); }, inputs);
}

class GradcheckOfModules : public testing::Test {
 protected:
  GradcheckOfModules() { c10::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kDouble)); }
  ~GradcheckOfModules() override {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat));
  }
  template <typename Make>
  auto made(const Make& make) {
    torch::manual_seed(4);
    return libtorch::on(box_.device(0), make);
  }
  sim::Simulation box_ = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
};

TEST_F(GradcheckOfModules, PassesForATransformersLayer) {
  auto block = made([] { return std::make_shared<Block>(Block::Options{4, 2, true, 0, true}); });
  const Tensor memory = random_on(box_.device(0), {1, 2, 4});
  EXPECT_EQ(gradcheck_module(block, {1, 3, 4},
                             [&](auto& m, const Tensor& x) { return m->forward(x, memory); }),
            "");
}

TEST_F(GradcheckOfModules, PassesForGru) {
  auto gru = made([] { return torch::nn::GRU(3, 4); });
  EXPECT_EQ(
      gradcheck_module(gru, {2, 2, 3}, [](auto& m, const Tensor& x) { return std::get<0>(m(x)); }),
      "");
}

TEST_F(GradcheckOfModules, PassesForLstm) {
  auto lstm = made([] { return torch::nn::LSTM(3, 4); });
  EXPECT_EQ(
      gradcheck_module(lstm, {2, 2, 3}, [](auto& m, const Tensor& x) { return std::get<0>(m(x)); }),
      "");
}

TEST_F(GradcheckOfModules, PassesForBilinear) {
  auto bilinear = made([] { return torch::nn::Bilinear(3, 3, 2); });
  EXPECT_EQ(
      gradcheck_module(bilinear, {2, 3}, [](auto& m, const Tensor& x) { return m(x, x * x); }), "");
}

// ---- And fails where it should

struct WrongSquare : torch::autograd::Function<WrongSquare> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {3 * context->get_saved_variables()[0] * gradients[0]};
  }
};

TEST(GradcheckItself, FindsAWrongGradient) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const Tensor x = torch::tensor({0.5, 2.0}, torch::kDouble).to(box.device(0));
  EXPECT_THAT(gradcheck([&] { return WrongSquare::apply(x); }, {x}),
              testing::StartsWith("input 0, number 0: gradient 1.262"));
}

TEST(GradcheckItself, FindsOneWrongElementInAnOtherwiseRightGradient) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const Tensor x = torch::tensor({0.5, 2.0, 3.0}, torch::kDouble).to(box.device(0));
  const auto partly_cut_off = [&] {
    return torch::cat({x.slice(0, 0, 2), x.slice(0, 2, 3).detach()});
  };
  EXPECT_THAT(gradcheck(partly_cut_off, {x}),
              testing::StartsWith("input 0, number 2: gradient 0,"));
}

}  // namespace
}  // namespace headroom::nets
