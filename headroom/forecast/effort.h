// The work of a forward and a backward pass, independent of the card: matrix products by number
// type and by operations per byte (arithmetic intensity), and the bytes that other kernels move.
// step_time.h turns it into seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom::forecast {

// The number type that a product is computed in. PyTorch uses TF32 for float32 convolutions where
// the chip has it, but not for other float32 products (torch.backends.cudnn.allow_tf32,
// torch.backends.cuda.matmul).
enum class Arithmetic : std::uint8_t { float32, tf32, bfloat16, float16 };

class Effort {
 public:
  struct Products {
    double operations = 0, bytes = 0, kernels = 0;
  };
  static constexpr std::size_t kArithmetics = 4;
  // Classes of operations per byte, one for each power of two. The same rate of the card bounds all
  // products of a class, except in the class with the boundary between compute and bandwidth.
  static constexpr std::size_t kIntensities = 16;

  // `operations`: multiplications and additions; `bytes`: read and written.
  void add_product(Arithmetic arithmetic, double operations, double bytes);
  // Bytes that a kernel other than a product writes; negative: a product wrote them. For each
  // tensor that they write, such kernels read one or two in the forward pass, two or three in the
  // backward pass.
  void add_written(double bytes) {
    moved_ += kMoved * bytes;
    kernels_ += bytes > 0 ? 1 : bytes < 0 ? -1 : 0;
  }
  void add_read(double bytes) { moved_ += bytes; }  // in addition

  [[nodiscard]] const auto& products() const { return products_; }
  [[nodiscard]] double moved() const { return moved_; }  // read and written by other kernels
  [[nodiscard]] double other_kernels() const { return kernels_; }
  [[nodiscard]] double operations() const;

  Effort& operator+=(const Effort& more);
  // Counts the work done since `before` another `times` times.
  void repeat_since(const Effort& before, double times);

 private:
  static constexpr double kMoved = 3;  // bytes moved per byte written
  // Adds the work from `then` to `now`, `times` times.
  void add(const Effort& now, const Effort& then, double times);

  std::array<std::array<Products, kIntensities>, kArithmetics> products_{};
  double moved_ = 0, kernels_ = 0;
};

}  // namespace headroom::forecast
