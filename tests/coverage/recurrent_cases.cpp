#include "programs.h"

namespace headroom::coverage {
namespace {

namespace rnn = torch::nn::utils::rnn;

// Five steps of a batch of two; six numbers in, eight out.
template <typename Module, typename Options>
Program over_steps(Options options) {
  return [=](Trial& t) -> Outputs { return t.forward<Module>(options, t.x({5, 2, 6})); };
}

template <typename Module, typename Options>
Program over_packed_steps(Options options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options);
    const auto packed = rnn::pack_padded_sequence(t.x({5, 2, 6}), torch::tensor({5, 3}));
    const auto [out, state] = module->forward_with_packed_input(packed);
    return std::tuple(out.data(), out.batch_sizes(), state);
  };
}

template <typename Module, typename Options>
Program from_state(Options options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options);
    const Tensor x = t.x({5, 2, 6});
    return module->forward(x, t.x({1, 2, 8}));
  };
}

template <typename Module, typename Options>
Program cell(Options options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options);
    const Tensor x = t.x({2, 6});
    return module->forward(x, t.x({2, 8}));
  };
}

}  // namespace

Cases recurrent_cases() {
  using R = nn::RNNOptions;
  using L = nn::LSTMOptions;
  using G = nn::GRUOptions;
  return {
      {"RNN", "", over_steps<nn::RNN>(R(6, 8))},
      {"RNN", "of rectifiers",
       over_steps<nn::RNN>(R(6, 8).nonlinearity(torch::kReLU).num_layers(2))},
      {"RNN", "in both directions", over_steps<nn::RNN>(R(6, 8).bidirectional(true).bias(false))},
      {"RNN", "batch first", over_steps<nn::RNN>(R(6, 8).batch_first(true))},
      {"RNN", "from a state", from_state<nn::RNN>(R(6, 8))},
      {"RNN", "packed", over_packed_steps<nn::RNN>(R(6, 8))},
      {"LSTM", "", over_steps<nn::LSTM>(L(6, 8))},
      {"LSTM", "of two layers", over_steps<nn::LSTM>(L(6, 8).num_layers(2))},
      {"LSTM", "with dropout", over_steps<nn::LSTM>(L(6, 8).num_layers(2).dropout(0.3))},
      {"LSTM", "in both directions",
       over_steps<nn::LSTM>(L(6, 8).num_layers(2).bidirectional(true))},
      {"LSTM", "batch first", over_steps<nn::LSTM>(L(6, 8).batch_first(true))},
      {"LSTM", "without bias", over_steps<nn::LSTM>(L(6, 8).bias(false))},
      {"LSTM", "projected", over_steps<nn::LSTM>(L(6, 8).proj_size(3))},
      {"LSTM", "packed", over_packed_steps<nn::LSTM>(L(6, 8))},
      {"LSTM", "evaluating",
       [](Trial& t) {
         return t.evaluate<nn::LSTM>(L(6, 8).num_layers(2), t.constant({5, 2, 6}));
       }},
      {"LSTM", "from a state",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::LSTM>(L(6, 8));
         const Tensor x = t.x({5, 2, 6});
         const Tensor h = t.x({1, 2, 8});
         return module->forward(x, std::tuple(h, t.x({1, 2, 8})));
       }},
      {"GRU", "", over_steps<nn::GRU>(G(6, 8))},
      {"GRU", "of two layers", over_steps<nn::GRU>(G(6, 8).num_layers(2))},
      {"GRU", "in both directions", over_steps<nn::GRU>(G(6, 8).bidirectional(true).bias(false))},
      {"GRU", "batch first", over_steps<nn::GRU>(G(6, 8).batch_first(true))},
      {"GRU", "from a state", from_state<nn::GRU>(G(6, 8))},
      {"GRU", "packed", over_packed_steps<nn::GRU>(G(6, 8))},
      {"RNNCell", "", cell<nn::RNNCell>(nn::RNNCellOptions(6, 8))},
      {"RNNCell", "of rectifiers",
       cell<nn::RNNCell>(nn::RNNCellOptions(6, 8).nonlinearity(torch::kReLU).bias(false))},
      {"LSTMCell", "",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::LSTMCell>(nn::LSTMCellOptions(6, 8));
         const Tensor x = t.x({2, 6});
         const Tensor h = t.x({2, 8});
         return module->forward(x, std::tuple(h, t.x({2, 8})));
       }},
      {"LSTMCell", "without state",
       [](Trial& t) {
         return t.forward<nn::LSTMCell>(nn::LSTMCellOptions(6, 8).bias(false), t.x({2, 6}));
       }},
      {"GRUCell", "", cell<nn::GRUCell>(nn::GRUCellOptions(6, 8))},
      {"GRUCell", "without bias", cell<nn::GRUCell>(nn::GRUCellOptions(6, 8).bias(false))},
  };
}

}  // namespace headroom::coverage
