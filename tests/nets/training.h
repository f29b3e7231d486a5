// A net of the table cases.json with its optimizer, ready to train on a device.
//
//   const Case& gpt = nets::case_named("gpt");
//   Training training(gpt, gpt.real, box.device(0));
//   training.step(nets::empty_batch(training.net().inputs(), training.floats(), box.device(0)));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/nets/net.h"
#include "tests/nets/optimizers.h"

namespace headroom::nets {

enum class Precision { fp32, bf16, autocast };

struct Case {
  std::string name;
  std::string net;
  Precision precision = Precision::fp32;
  std::string optimizer;
  Sizes real{};   // measured without data
  Sizes small{};  // computed
};

// The table, in its order.
[[nodiscard]] const std::vector<Case>& cases();
[[nodiscard]] const Case& case_named(const std::string& name);  // throws std::out_of_range

class Training {
 public:
  Training(const Case& of, const Sizes& sizes, c10::Device device,
           std::optional<c10::Device> second_half = {});

  [[nodiscard]] Net& net() const { return *net_; }
  [[nodiscard]] Optimizer& optimizer() const { return *optimizer_; }
  [[nodiscard]] torch::Dtype floats() const {
    return precision_ == Precision::bf16 ? torch::kBFloat16 : torch::kFloat;
  }
  // Parameters and buffers, in the net's order.
  [[nodiscard]] std::vector<Tensor> state() const;

  // Forward pass; under autocast if the case says so.
  [[nodiscard]] Tensor loss(const Batch& batch) const;
  // A whole step; the gradients are freed at its end.
  Tensor step(const Batch& batch) const;

 private:
  Precision precision_;
  c10::Device device_;
  std::shared_ptr<Net> net_;
  std::unique_ptr<Optimizer> optimizer_;
};

// As Python's training loop: a loss lives until the next step has its own.
void train(const Training& training, const Batch& batch, int steps);

}  // namespace headroom::nets
