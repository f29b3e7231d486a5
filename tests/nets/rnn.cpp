#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

class Rnn : public Net {
 public:
  explicit Rnn(const Sizes& c) : lstm_cells_(c.optional("lstm") != 0) {
    const std::int64_t width = c["width"];
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], width));
    if (lstm_cells_)
      lstm_ = register_module(
          "cells",
          torch::nn::LSTM(
              torch::nn::LSTMOptions(width, width).num_layers(c["layers"]).batch_first(true)));
    else
      gru_ = register_module(
          "cells",
          torch::nn::GRU(
              torch::nn::GRUOptions(width, width).num_layers(c["layers"]).batch_first(true)));
    head_ = register_module("head", torch::nn::Linear(width, c["vocabulary"]));
    const Input tokens{{c["batch"], c["length"]}, c["vocabulary"]};
    inputs_ = {tokens, tokens};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = token_(batch[0]);
    x = lstm_cells_ ? std::get<0>(lstm_->forward(x)) : std::get<0>(gru_->forward(x));
    x = linear(x, head_);
    return torch::cross_entropy_loss(x.view({-1, x.size(-1)}), batch[1].view(-1));
  }

 private:
  const bool lstm_cells_;
  torch::nn::Embedding token_{nullptr};
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::GRU gru_{nullptr};
  torch::nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_rnn(const Sizes& sizes) {
  return std::make_shared<Rnn>(sizes);
}

}  // namespace headroom::nets
