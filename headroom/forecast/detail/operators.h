// The memory that PyTorch's operators allocate, keep for the backward pass and need there, after
// their derivatives in tools/autograd/derivatives.yaml of PyTorch 2.11 and their CUDA kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "headroom/forecast/detail/tape.h"

namespace headroom::forecast::detail {

// ---- Copies and views ----

[[nodiscard]] Value cast(Tape& tape, const Value& x, Type type);  // `x` itself if it has the type
[[nodiscard]] Value copied(Tape& tape, const Value& x);  // .contiguous() of a non-contiguous tensor
// A part of `x` without a copy; its gradient is as large as `x`.
[[nodiscard]] Value slice(Tape& tape, const Value& x, std::int64_t count);
// All of `x` in parts, without a copy.
[[nodiscard]] std::vector<Value> split(Tape& tape, const Value& x,
                                       std::initializer_list<std::int64_t> counts);
[[nodiscard]] Value cat(Tape& tape, const Value& a, const Value& b);
// Another number of elements over the same memory: expand(), and its sum in the backward pass.
[[nodiscard]] Value expanded(Tape& tape, const Value& x, std::int64_t count);
// Elements or whole rows of `x`, by index.
[[nodiscard]] Value gathered(Tape& tape, const Value& x, std::int64_t count);

// ---- Elementwise ----

enum class Keeps { nothing, input, result };
// A function whose derivative needs the tensors it keeps and `on_the_way` temporary ones.
[[nodiscard]] Value unary(Tape& tape, const Value& x, Keeps keeps, int on_the_way = 0);
[[nodiscard]] Value times_number(Tape& tape, const Value& x);
[[nodiscard]] Value plus_number(Tape& tape, const Value& x);
[[nodiscard]] Value plus(Tape& tape, const Value& a, const Value& b);
void add_to(Tape& tape, Value& a, const Value& b);  // in place
[[nodiscard]] Value times(Tape& tape, const Value& a, const Value& b);
[[nodiscard]] Value power(Tape& tape, const Value& x);
[[nodiscard]] Value masked(Tape& tape, const Value& x);  // where, masked_fill
[[nodiscard]] Value dropout(Tape& tape, const Value& x, double share);
// By its name in config.json. Throws InternalError for an unknown name.
[[nodiscard]] Value activation(Tape& tape, std::string_view name, const Value& x);

// ---- Sums and norms ----

[[nodiscard]] Value mean_of_rows(Tape& tape, const Value& x, std::int64_t rows);
[[nodiscard]] Value softmax(Tape& tape, const Value& x);
// `columns` numbers per row; its statistics are float32.
[[nodiscard]] Value layer_norm(Tape& tape, const Value& x, std::int64_t columns, Parameter* weight,
                               Parameter* bias);
[[nodiscard]] Value batch_norm(Tape& tape, const Value& x, Parameter& weight, Parameter& bias);

// ---- Products ----

// The work of a matrix product: operations, and elements of the tensors that it reads and writes.
// `result`: the elements among them that the tape has made, which would otherwise also count as
// written by another kernel.
struct Work {
  double operations;
  std::int64_t elements, result;
};
void compute(Tape& tape, Type type, const Work& work, double times = 1);

// Without autocast, LoRA or quantisation, which layers add (network.h).
[[nodiscard]] Value product(Tape& tape, const Value& x, const Value& weight, const Value& bias,
                            std::int64_t in, std::int64_t out);
// A product in the weight's type, which keeps `x` in its own (nn/lora.h).
[[nodiscard]] Value widened_product(Tape& tape, const Value& x, const Value& weight,
                                    std::int64_t in, std::int64_t out);
// `heads` matrix products for each row of the batch; the result has `count` elements.
struct Matrices {
  std::int64_t rows, heads;
};
[[nodiscard]] Value matmul(Tape& tape, const Value& a, const Value& b, std::int64_t count,
                           const Matrices& matrices);
[[nodiscard]] Value embedding(Tape& tape, Parameter& weight, std::int64_t indices);

struct Image {
  std::int64_t rows, channels, height, width;
  [[nodiscard]] std::int64_t count() const { return rows * channels * height * width; }
};
struct Convolution {
  std::int64_t out, kernel, stride = 1, padding = 0, groups = 1;
};
[[nodiscard]] Image result_of(const Image& x, const Convolution& convolution);
// The result has `channels` channels and `count` elements.
[[nodiscard]] Value convolution(Tape& tape, const Value& x, const Value& weight, const Value& bias,
                                std::int64_t channels, std::int64_t count);
[[nodiscard]] Value max_pool(Tape& tape, const Value& x, std::int64_t count);

// ---- Losses: one number each ----

[[nodiscard]] Value cross_entropy(Tape& tape, const Value& logits);
[[nodiscard]] Value mean_squared_error(Tape& tape, const Value& x);

}  // namespace headroom::forecast::detail
