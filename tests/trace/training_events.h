// Events shaped like a training loop: each step has the same modules, sizes and order; times
// jitter, and addresses are those of blocks that were freed before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "headroom/trace/event.h"

namespace headroom::trace::testing {

class TrainingEvents {
 public:
  // Steps of `layers` layers; each allocates six tensors forward, and backward frees them between
  // twelve allocations.
  TrainingEvents(Names& names, int layers, unsigned seed = 1) : random_(seed) {
    for (int layer = 0; layer < layers; ++layer)
      for (const char* part : {".ln_1", ".attn.c_attn", ".attn", ".mlp.c_fc", ".mlp.act", ".mlp"})
        modules_.push_back(names.number("transformer.h." + std::to_string(layer) + part));
    for (const char* text : {"aten::mm", "aten::native_layer_norm", "aten::gelu", "aten::add"})
      operations_.push_back(names.number(text));
  }

  Event next() {
    while (at_ == step_.size()) make_step();
    return step_[at_++];
  }

 private:
  struct Tensor {
    std::uint64_t address;
    std::int64_t bytes;
    Name module;
  };

  void make_step() {
    step_.clear();
    at_ = 0;
    ++step_number_;
    std::vector<Tensor> saved;
    for (std::size_t i = 0; i < modules_.size(); ++i) saved.push_back(allocate(i, Phase::forward));
    for (std::size_t i = modules_.size(); i-- > 0;) {
      const Tensor gradient = allocate(i, Phase::backward);
      const Tensor scratch = allocate(i + 1, Phase::backward);
      free(saved[i]);
      free(scratch);
      free(gradient);
    }
  }

  Tensor allocate(std::size_t i, Phase phase) {
    const std::int64_t bytes = 512 * (1 + static_cast<std::int64_t>(i * i * 7919 % 40'000));
    std::vector<std::uint64_t>& free = free_[bytes];
    std::uint64_t address = next_address_;
    if (free.empty()) {
      next_address_ += static_cast<std::uint64_t>(bytes);
    } else {
      const std::size_t chosen =
          free.size() - 1 - random_() % std::min<std::size_t>(free.size(), 2);
      address = std::exchange(free[chosen], free.back());
      free.pop_back();
    }
    const Name module = modules_[i % modules_.size()];
    add(Kind::alloc, {address, bytes, module}, i, phase);
    return {address, bytes, module};
  }

  void free(const Tensor& tensor) {
    free_[tensor.bytes].push_back(tensor.address);
    add(Kind::free_requested, tensor, 0, Phase::backward);
    add(Kind::free_completed, tensor, 0, Phase::backward);
  }

  void add(Kind kind, const Tensor& tensor, std::size_t i, Phase phase) {
    if (kind != Kind::free_completed) time_ns_ += 2'000 + random_() % 38'000;
    Event event;
    event.time_ns = time_ns_;
    event.address = tensor.address;
    event.bytes = Bytes{tensor.bytes};
    event.step = step_number_;
    event.module = tensor.module;
    event.operation = operations_[i % operations_.size()];
    event.kind = kind;
    event.category = phase == Phase::forward ? Category::activation : Category::temporary;
    event.phase = phase;
    step_.push_back(event);
  }

  std::mt19937_64 random_;
  std::vector<Name> modules_, operations_;
  std::map<std::int64_t, std::vector<std::uint64_t>> free_;
  std::uint64_t next_address_ = 0x7f20'0000'0000;
  std::int64_t time_ns_ = 1'760'000'000'000'000'000;
  std::uint32_t step_number_ = 0;
  std::vector<Event> step_;
  std::size_t at_ = 0;
};

}  // namespace headroom::trace::testing
