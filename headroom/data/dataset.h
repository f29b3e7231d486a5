// A set of numbered examples to train on, read one at a time.
//
//   class Squares : public data::Dataset {
//     std::int64_t size() const override { return 100; }
//     data::Tensors example(std::int64_t index, std::uint64_t) const override {
//       return {torch::tensor(index), torch::tensor(index * index)};
//     }
//   };
//
// A Loader (loader.h) makes batches of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::data {

using Tensors = std::vector<at::Tensor>;

// The parts of a set. Where a set has no test part, its validation part stands for it, and the
// other way round.
enum class Split { train, validation, test };

// "train", "validation", "test"
[[nodiscard]] const char* to_string(Split split);

class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;

  // One example, on the CPU: its inputs, and its labels last. All examples have the same number of
  // tensors, and tensors at the same place have the same shape and type. `seed` decides everything
  // that is random in the example: equal arguments give equal tensors. The index is below size().
  // Threads: several call it at once.
  [[nodiscard]] virtual Tensors example(std::int64_t index, std::uint64_t seed) const = 0;
};

}  // namespace headroom::data
