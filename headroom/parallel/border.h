// The border between two stages of a split model: each hands lists of tensors to the other, outputs
// in one direction, their gradients in the other.
//
//   Border next(stages, stage + 1);
//   next.give(outputs);                           // forward
//   const Tensors gradients = next.take(device);  // backward
//
// Sizes and types go ahead of the tensors, so lists may differ. Undefined tensors stay undefined,
// and one that requires a gradient requires it there as well; the graph does not cross.
//
// give() returns at once and holds its tensors until the next give(), or end(), which wait until
// they have been taken. So they are freed at a fixed place of this stage's program, and the memory
// of a card does not depend on how fast the others are.
//
// The neighbour waits for each list. A stage that cannot compute one says give_nothing(), and
// take() on the other side throws NothingGiven. A stage that cannot use one says skip().
//
// Threads: that of the stage.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <optional>
#include <vector>

#include "headroom/parallel/group.h"

namespace headroom::parallel {

struct NothingGiven final : std::exception {
  [[nodiscard]] const char* what() const noexcept override {
    return "the stage before or after this one has failed";
  }
};

class Border {
 public:
  using Tensors = std::vector<at::Tensor>;

  Border(Group stages, int neighbour);
  // Without the neighbour, for a dry run: take() makes tensors like those of `given`, one list
  // after another, on any device; without them, like the gradients of the lists that give() got.
  static Border alone(std::optional<std::vector<Tensors>> given);

  // Throws UsageError for more tensors than a message can describe.
  void give(const Tensors& tensors);
  void give_nothing();
  [[nodiscard]] Tensors take(c10::Device device);
  void skip();
  void end();

  // Before the first list of a step; forgets what was described below.
  void start();
  // Alone: what give() got since then, on the meta device.
  [[nodiscard]] const std::vector<Tensors>& given() const { return given_; }

 private:
  Border() = default;
  [[nodiscard]] bool is_alone() const { return neighbour_ < 0; }
  void send(const at::Tensor& tensor);
  void receive(const at::Tensor& into);
  [[nodiscard]] std::optional<Tensors> announced();
  void note(const Tensors& tensors);
  [[nodiscard]] Tensors take_alone(c10::Device device);

  Group stages_;
  int neighbour_ = -1;
  at::Tensor sent_, received_;  // what goes ahead of a list
  Tensors held_;
  std::vector<c10::intrusive_ptr<c10d::Work>> under_way_;
  std::optional<std::vector<Tensors>> likes_;  // alone
  std::vector<Tensors> given_;                 // alone
  std::size_t taken_ = 0;                      // alone: lists
};

}  // namespace headroom::parallel
