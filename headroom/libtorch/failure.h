// Decides whether an exception means that memory ran out, of a card or of the host.
//
//   try {
//     step();
//   } catch (...) {
//     if (!libtorch::is_out_of_memory(std::current_exception())) throw;
//     try_with_less();
//   }
//
// Memory of a card runs out in several ways: the allocator's c10::OutOfMemoryError, CUDA's error 2
// (c10::AcceleratorError), and plain errors of cuBLAS, cuDNN, cuSOLVER and NCCL, which only their
// text tells from other failures. The CPU's allocator throws a plain error, too. An exception
// thrown with std::throw_with_nested counts by its causes as well.
#pragma once

#include <exception>

#include "headroom/oom/judgement.h"

namespace headroom::libtorch {

[[nodiscard]] oom::Judgement judge(const std::exception_ptr& failure);
[[nodiscard]] bool is_out_of_memory(const std::exception_ptr& failure);

}  // namespace headroom::libtorch
