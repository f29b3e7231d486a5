#include "programs.h"

namespace headroom::coverage {
namespace {

template <typename Function>
Program of_x(Function function, Sizes sizes = {3, 6}) {
  return [=](Trial& t) -> Outputs { return function(t.x(sizes)); };
}

}  // namespace

Cases functional_activation_cases() {
  return {
      {"F::elu", "", of_x([](const Tensor& x) { return F::elu(x); })},
      {"F::selu", "", of_x([](const Tensor& x) { return F::selu(x); })},
      {"F::hardshrink", "", of_x([](const Tensor& x) { return F::hardshrink(x); })},
      {"F::hardtanh", "", of_x([](const Tensor& x) { return F::hardtanh(x); })},
      {"F::leaky_relu", "", of_x([](const Tensor& x) { return F::leaky_relu(x); })},
      {"F::logsigmoid", "", of_x([](const Tensor& x) { return F::logsigmoid(x); })},
      {"F::softmax", "", of_x([](const Tensor& x) { return F::softmax(x, 1); })},
      {"F::softmax", "in double", of_x([](const Tensor& x) {
         return F::softmax(x, F::SoftmaxFuncOptions(1).dtype(torch::kDouble));
       })},
      {"F::softmin", "", of_x([](const Tensor& x) { return F::softmin(x, 1); })},
      {"F::log_softmax", "", of_x([](const Tensor& x) { return F::log_softmax(x, 1); })},
      {"F::log_softmax", "in float", of_x([](const Tensor& x) {
         return F::log_softmax(x, F::LogSoftmaxFuncOptions(0).dtype(torch::kFloat));
       })},
      {"F::glu", "", of_x([](const Tensor& x) { return F::glu(x); })},
      {"F::gelu", "", of_x([](const Tensor& x) { return F::gelu(x); })},
      {"F::silu", "", of_x([](const Tensor& x) { return F::silu(x); })},
      {"F::mish", "", of_x([](const Tensor& x) { return F::mish(x); })},
      {"F::prelu", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({3, 4, 2});
         return F::prelu(x, t.x({4}));
       }},
      {"F::relu", "", of_x([](const Tensor& x) { return F::relu(x); })},
      {"F::relu6", "", of_x([](const Tensor& x) { return F::relu6(x); })},
      {"F::rrelu", "", of_x([](const Tensor& x) { return F::rrelu(x); })},
      {"F::rrelu", "training",
       of_x([](const Tensor& x) { return F::rrelu(x, F::RReLUFuncOptions().training(true)); })},
      {"F::celu", "", of_x([](const Tensor& x) { return F::celu(x); })},
      {"F::softplus", "", of_x([](const Tensor& x) { return F::softplus(x); })},
      {"F::softshrink", "", of_x([](const Tensor& x) { return F::softshrink(x); })},
      {"F::softsign", "", of_x([](const Tensor& x) { return F::softsign(x); })},
      {"F::tanhshrink", "", of_x([](const Tensor& x) { return F::tanhshrink(x); })},
      {"F::threshold", "",
       of_x([](const Tensor& x) { return F::threshold(x, F::ThresholdFuncOptions(0.1, 3)); })},
      {"F::gumbel_softmax", "", of_x([](const Tensor& x) { return F::gumbel_softmax(x); })},
      {"F::gumbel_softmax", "hard", of_x([](const Tensor& x) {
         return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().hard(true).dim(1));
       })},
      {"F::dropout", "", of_x([](const Tensor& x) { return F::dropout(x); })},
      {"F::dropout2d", "", of_x([](const Tensor& x) { return F::dropout2d(x); }, {2, 3, 4, 5})},
      {"F::dropout3d", "", of_x([](const Tensor& x) { return F::dropout3d(x); }, {2, 3, 2, 4, 5})},
      {"F::alpha_dropout", "", of_x([](const Tensor& x) {
         return F::alpha_dropout(x, F::AlphaDropoutFuncOptions().training(true));
       })},
      {"F::feature_alpha_dropout", "", of_x([](const Tensor& x) {
         return F::feature_alpha_dropout(x, F::FeatureAlphaDropoutFuncOptions().training(true));
       })},
  };
}

}  // namespace headroom::coverage
