#include "tests/oracle/training_steps.h"

namespace headroom::oracle {

using allocator::Operation;

TrainingSteps::TrainingSteps(const GptShape& shape) : shape_(shape) {
  const std::int64_t h = shape.hidden;
  layer_weights_ = {h, h, 3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h};
  parameters();
}

TrainingSteps::Id TrainingSteps::take(std::int64_t bytes) {
  Id id = next_id_;
  if (unused_ids_.empty()) {
    ++next_id_;
  } else {
    id = unused_ids_.back();
    unused_ids_.pop_back();
  }
  operations_.push_back({.bytes = bytes, .id = id, .kind = Operation::Kind::allocate});
  return id;
}

void TrainingSteps::give_back(Id id) {
  operations_.push_back({.id = id, .kind = Operation::Kind::free});
  unused_ids_.push_back(id);
}

void TrainingSteps::parameters() {
  take(shape_.vocabulary * shape_.hidden * shape_.bytes_per_value);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    for (const std::int64_t values : layer_weights_) take(values * shape_.bytes_per_value);
}

// Adam's two, in 32 bits.
void TrainingSteps::optimizer_states() {
  for (int moment = 0; moment < 2; ++moment) {
    take(shape_.vocabulary * shape_.hidden * 4);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
      for (const std::int64_t values : layer_weights_) take(values * 4);
  }
}

std::vector<TrainingSteps::Id> TrainingSteps::forward_layer(std::int64_t tokens,
                                                            std::int64_t sequence) {
  const std::int64_t row = tokens * shape_.hidden * shape_.bytes_per_value;
  std::vector<Id> saved;
  const auto norm = [&] {
    saved.push_back(take(row));
    saved.push_back(take(tokens * 4));
    saved.push_back(take(tokens * 4));
  };
  norm();
  saved.push_back(take(3 * row));
  temporary(3 * row);  // the heads side by side
  saved.push_back(take(row));
  saved.push_back(take(tokens / sequence * shape_.heads * sequence * 4));
  const Id projected = take(row);
  temporary(tokens * shape_.hidden);  // dropout's mask
  saved.push_back(take(row));
  give_back(projected);
  norm();
  saved.push_back(take(4 * row));
  saved.push_back(take(4 * row));
  const Id out = take(row);
  saved.push_back(take(row));
  give_back(out);
  return saved;
}

void TrainingSteps::backward_layer(std::vector<Id> saved, std::int64_t tokens,
                                   std::int64_t sequence) {
  const std::int64_t row = tokens * shape_.hidden * shape_.bytes_per_value;
  const auto drop = [&](int count) {
    for (; count > 0 && !saved.empty(); --count) {
      give_back(saved.back());
      saved.pop_back();
    }
  };
  std::size_t weight = layer_weights_.size();
  const auto gradients = [&](int count) {
    for (; count > 0; --count)
      gradients_.push_back(take(layer_weights_[--weight] * shape_.bytes_per_value));
  };
  const Id wide = take(4 * row);
  gradients(2);
  drop(2);
  const Id activated = take(4 * row);
  give_back(wide);
  gradients(2);
  drop(1);
  const Id narrow = take(row);
  give_back(activated);
  gradients(2);
  drop(3);
  const Id attention = take(row);
  gradients(2);
  drop(1);
  const Id heads = take(3 * row);
  temporary(tokens / sequence * shape_.heads * sequence * 4);
  drop(2);
  give_back(attention);
  gradients(2);
  give_back(heads);
  gradients(2);
  drop(20);
  give_back(narrow);
}

// Logits and loss, forward and backward.
void TrainingSteps::head(std::int64_t tokens) {
  const Id logits = take(tokens * shape_.vocabulary * shape_.bytes_per_value);
  const Id log_probabilities = take(tokens * shape_.vocabulary * 4);
  const Id loss = take(4);
  const Id gradient = take(tokens * shape_.vocabulary * 4);
  give_back(log_probabilities);
  give_back(logits);
  temporary(tokens * shape_.hidden * shape_.bytes_per_value);
  gradients_.push_back(take(shape_.vocabulary * shape_.hidden * shape_.bytes_per_value));
  give_back(gradient);
  give_back(loss);
}

void TrainingSteps::optimizer() {
  if (!has_states_) optimizer_states();
  has_states_ = true;
  for (const std::int64_t values : layer_weights_) temporary(values * 4);
  for (const Id gradient : gradients_) give_back(gradient);
  gradients_.clear();
}

void TrainingSteps::step(std::int64_t sequence) {
  const std::int64_t tokens = shape_.batch * sequence;
  const Id input = take(tokens * 8);
  const Id embedded = take(tokens * shape_.hidden * shape_.bytes_per_value);
  std::vector<std::vector<Id>> saved;
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    saved.push_back(forward_layer(tokens, sequence));
  head(tokens);
  for (; !saved.empty(); saved.pop_back()) backward_layer(saved.back(), tokens, sequence);
  give_back(embedded);
  give_back(input);
  optimizer();
}

}  // namespace headroom::oracle
