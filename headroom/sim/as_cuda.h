// Lets programs that name "cuda" run on simulated cards. While an AsCuda lives, CUDA device number
// i means sim:i: tensors that are made on it, moved to it or asked for it lie on that card. They
// still say that they lie on `sim`; the Python face (python/headroom/masquerade) shows them as
// CUDA's.
//
//   Simulation box = simulate("2xH100");
//   const AsCuda as_cuda;
//   at::Tensor x = at::empty({2, 2}, at::Device("cuda:1"));   // x.device() is sim:1
//
// It works in every thread and for LibTorch with and without CUDA. The process must not have used
// CUDA, and must not while it lives.
#pragma once

#include <memory>

namespace headroom::sim {

class AsCuda {
 public:
  // After simulate(). Throws UsageError if one lives already.
  AsCuda();
  AsCuda(const AsCuda&) = delete;
  AsCuda& operator=(const AsCuda&) = delete;
  ~AsCuda();  // in the thread that made it, when no other one runs an operator

 private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace headroom::sim
