// The requests of a GPT's training, step after step: parameters that stay, activations kept from
// forward to backward, temporaries, gradients, optimizer states. Sizes are those of a real model in
// bytes, from its shape; the order is that of PyTorch's autograd.
//
//   TrainingSteps training({.layers = 24, .hidden = 1024});
//   while (training.operations().size() < 1'000'000) training.step();
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/allocator/operation.h"

namespace headroom::oracle {

struct GptShape {
  std::int64_t layers = 24;
  std::int64_t hidden = 1024;
  std::int64_t heads = 16;
  std::int64_t vocabulary = 50257;
  std::int64_t batch = 8;
  std::int64_t sequence = 1024;
  std::int64_t bytes_per_value = 2;
};

class TrainingSteps {
 public:
  // Ids are given out from 0 on, and again after they were freed.
  explicit TrainingSteps(const GptShape& shape);

  // Forward, backward, optimizer. A length other than the shape's changes the activations only.
  void step() { step(shape_.sequence); }
  void step(std::int64_t sequence);

  [[nodiscard]] const std::vector<allocator::Operation>& operations() const { return operations_; }

 private:
  using Id = std::uint32_t;

  Id take(std::int64_t bytes);
  void give_back(Id id);
  void temporary(std::int64_t bytes) { give_back(take(bytes)); }
  void parameters();
  void optimizer_states();
  std::vector<Id> forward_layer(std::int64_t tokens, std::int64_t sequence);
  void backward_layer(std::vector<Id> saved, std::int64_t tokens, std::int64_t sequence);
  void head(std::int64_t tokens);
  void optimizer();

  GptShape shape_;
  std::vector<std::int64_t> layer_weights_;  // values of each parameter of a layer
  std::vector<Id> gradients_;
  bool has_states_ = false;
  Id next_id_ = 0;
  std::vector<Id> unused_ids_;
  std::vector<allocator::Operation> operations_;
};

}  // namespace headroom::oracle
