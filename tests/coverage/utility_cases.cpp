#include <limits>

#include "programs.h"

namespace headroom::coverage {
namespace {

namespace rnn = torch::nn::utils::rnn;

// Two layers after a backward pass.
nn::Sequential trained(Trial& t) {
  auto net = t.make([] { return nn::Sequential(nn::Linear(4, 6), nn::Linear(6, 2)); });
  net->forward(t.x({3, 4})).square().sum().backward();
  return net;
}

Program clipped(double norm_type, bool refuse_infinite = false) {
  return [=](Trial& t) -> Outputs {
    nn::utils::clip_grad_norm_(trained(t)->parameters(), 0.1, norm_type, refuse_infinite);
    return {};
  };
}

Outputs parts_of(const rnn::PackedSequence& packed) {
  return std::tuple(packed.data(), packed.batch_sizes(), packed.sorted_indices(),
                    packed.unsorted_indices());
}

std::vector<Tensor> sequences(Trial& t) {
  const Tensor longest = t.x({4, 3});
  const Tensor shorter = t.x({2, 3});
  return {longest, shorter, t.x({1, 3})};
}

Cases of_gradients() {
  return {
      {"utils::clip_grad_norm_", "", clipped(2)},
      {"utils::clip_grad_norm_", "by the largest",
       clipped(std::numeric_limits<double>::infinity())},
      {"utils::clip_grad_norm_", "by any power", clipped(3)},
      {"utils::clip_grad_norm_", "refusing what is not finite", clipped(2, true)},
      {"utils::clip_grad_value_", "",
       [](Trial& t) -> Outputs {
         nn::utils::clip_grad_value_(trained(t)->parameters(), 0.1);
         return {};
       }},
      {"utils::parameters_to_vector", "",
       [](Trial& t) -> Outputs {
         return nn::utils::parameters_to_vector(trained(t)->parameters());
       }},
      {"utils::vector_to_parameters", "",
       [](Trial& t) -> Outputs {
         const auto net = trained(t);
         nn::utils::vector_to_parameters(t.constant({4 * 6 + 6 + 6 * 2 + 2}), net->parameters());
         return {};
       }},
  };
}

Cases of_sequences() {
  return {
      {"utils::rnn::pack_padded_sequence", "",
       [](Trial& t) {
         return parts_of(rnn::pack_padded_sequence(t.x({5, 3, 2}), torch::tensor({5, 3, 1})));
       }},
      {"utils::rnn::pack_padded_sequence", "of any order",
       [](Trial& t) {
         return parts_of(
             rnn::pack_padded_sequence(t.x({3, 5, 2}), torch::tensor({1, 5, 3}), true, false));
       }},
      {"utils::rnn::pad_packed_sequence", "",
       [](Trial& t) -> Outputs {
         const auto packed = rnn::pack_padded_sequence(t.x({5, 3, 2}), torch::tensor({5, 3, 1}));
         return rnn::pad_packed_sequence(packed);
       }},
      {"utils::rnn::pad_packed_sequence", "of any order",
       [](Trial& t) -> Outputs {
         const auto packed =
             rnn::pack_padded_sequence(t.x({3, 5, 2}), torch::tensor({1, 5, 3}), true, false);
         return rnn::pad_packed_sequence(packed, true, -1, 7);
       }},
      {"utils::rnn::pack_sequence", "",
       [](Trial& t) { return parts_of(rnn::pack_sequence(sequences(t))); }},
      {"utils::rnn::pad_sequence", "",
       [](Trial& t) -> Outputs { return rnn::pad_sequence(sequences(t), true, 0.5); }},
      {"utils::rnn::pad_sequence", "to the left",
       [](Trial& t) -> Outputs { return rnn::pad_sequence(sequences(t), false, 0, "left"); }},
      {"utils::rnn::invert_permutation", "",
       [](Trial& t) -> Outputs {
         return rnn::invert_permutation(t.put(torch::tensor({2, 0, 3, 1})));
       }},
      {"utils::rnn::PackedSequence", "",
       [](Trial& t) {
         const rnn::PackedSequence packed(t.x({4, 3}), torch::tensor({2, 1, 1}),
                                          t.put(torch::tensor({1, 0})));
         return parts_of(packed.to(at::kDouble));
       }},
  };
}

}  // namespace

Cases utility_cases() {
  Cases all = of_gradients();
  for (Case& one : of_sequences()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage
