// What a forward and a backward pass cost, without a card: products of matrices by the kind of
// numbers that they take and by how many operations each byte allows, and what other kernels move.
// step_time.h makes seconds of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom::formula {

// What a product is computed in. PyTorch lets convolutions of floats use TF32 where the chip has
// it, and other products of floats not (torch.backends.cudnn.allow_tf32,
// torch.backends.cuda.matmul).
enum class Arithmetic : std::uint8_t { float32, tf32, bfloat16, float16 };

class Effort {
 public:
  struct Products {
    double operations = 0, bytes = 0;
  };
  static constexpr std::size_t kArithmetics = 4;
  // By operations for each byte, a class for each power of two: those of one class are bound by the
  // same of the card's rates, but for the class that has the boundary in it.
  static constexpr std::size_t kIntensities = 16;

  // Operations are products and sums; bytes what is read and written.
  void add_product(Arithmetic arithmetic, double operations, double bytes);
  // Bytes that a kernel of another kind writes; negative: they were a product's. On the way forth
  // such kernels read one tensor or two for each that they write, on the way back two or three.
  void add_written(double bytes) { moved_ += kMoved * bytes; }
  void add_read(double bytes) { moved_ += bytes; }  // besides

  [[nodiscard]] const auto& products() const { return products_; }
  [[nodiscard]] double moved() const { return moved_; }  // read and written by other kernels
  [[nodiscard]] double operations() const;

  // As if what came since `before` had come so many times more.
  void repeat_since(const Effort& before, double times);

 private:
  static constexpr double kMoved = 3;  // for each byte that is written
  std::array<std::array<Products, kIntensities>, kArithmetics> products_{};
  double moved_ = 0;
};

}  // namespace headroom::formula
