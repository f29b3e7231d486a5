// Nets to measure, compute and time, each built statement for statement as its twin in
// tests/peers/nets.py: what lives how long decides a peak, so temporaries have names on both sides
// and are bound again in the same order.
//
//   const auto net = nets::make_net("gpt", {{"vocabulary", 101}, {"width", 32}, ...});
//   const Batch batch = nets::random_batch(net->inputs(), torch::kFloat);
//   net->loss(batch).backward();
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace headroom::nets {

using torch::Tensor;
using Batch = std::vector<Tensor>;

// A net's sizes: "width", "layers", "batch", ...
class Sizes {
 public:
  Sizes(std::initializer_list<std::pair<const std::string, double>> values) : values_(values) {}
  explicit Sizes(std::map<std::string, double> values) : values_(std::move(values)) {}

  [[nodiscard]] std::int64_t operator[](const std::string& name) const {
    return static_cast<std::int64_t>(values_.at(name));
  }
  // 0 where there is none.
  [[nodiscard]] double optional(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }
  void set(const std::string& name, double value) { values_[name] = value; }

 private:
  std::map<std::string, double> values_;
};

// One tensor of a batch: whole numbers below a bound, or any numbers (bound 0).
struct Input {
  std::vector<std::int64_t> sizes;
  std::int64_t below = 0;
};

class Net : public torch::nn::Module {
 public:
  // Forward pass and loss.
  virtual Tensor loss(const Batch& batch) = 0;
  [[nodiscard]] const std::vector<Input>& inputs() const { return inputs_; }

 protected:
  std::vector<Input> inputs_;
};

// A net by its name in cases.json. `second_half`: where the later layers shall live (mlp, gpt).
[[nodiscard]] std::shared_ptr<Net> make_net(const std::string& name, const Sizes& sizes,
                                            std::optional<c10::Device> second_half = {});

// Random numbers, from the CPU's generator.
[[nodiscard]] Batch random_batch(const std::vector<Input>& inputs, torch::Dtype floats);
// Without numbers, made on the device.
[[nodiscard]] Batch empty_batch(const std::vector<Input>& inputs, torch::Dtype floats,
                                c10::Device device);

// One a file; see make_net.
std::shared_ptr<Net> make_mlp(const Sizes& sizes, std::optional<c10::Device> second_half);
std::shared_ptr<Net> make_gpt(const Sizes& sizes, std::optional<c10::Device> second_half);
std::shared_ptr<Net> make_llama(const Sizes& sizes);
std::shared_ptr<Net> make_encoder_decoder(const Sizes& sizes);
std::shared_ptr<Net> make_rnn(const Sizes& sizes);
std::shared_ptr<Net> make_resnet(const Sizes& sizes);
std::shared_ptr<Net> make_vit(const Sizes& sizes);
std::shared_ptr<Net> make_moe(const Sizes& sizes);
std::shared_ptr<Net> make_text(const Sizes& sizes);
std::shared_ptr<Net> make_autoencoder(const Sizes& sizes);

}  // namespace headroom::nets
