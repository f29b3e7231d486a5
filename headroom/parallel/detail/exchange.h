// Moves values from a card to host memory, between ranks, and back.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>

#include "headroom/parallel/detail/done_work.h"

namespace headroom::parallel::detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// True if the values of the tensor are sent to other ranks. Depends only on its device's mode, its
// type and its size, so that all ranks decide the same.
[[nodiscard]] bool crosses(const at::Tensor& tensor);
[[nodiscard]] bool cross(const Tensors& tensors);
[[nodiscard]] bool cross(const std::vector<Tensors>& lists);

// For tensors that are not sent: another rank wrote them, so their values become unknown.
void forget(const Tensors& tensors);
void forget(const std::vector<Tensors>& lists);

// Contiguous copies on the host; unknown values are zero there.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);
[[nodiscard]] Tensors on_host(const Tensors& tensors);
[[nodiscard]] std::vector<Tensors> on_host(const std::vector<Tensors>& lists);
// Uninitialized tensors of the same shapes on the host.
[[nodiscard]] at::Tensor room_on_host(const at::Tensor& tensor);
[[nodiscard]] Tensors room_on_host(const Tensors& tensors);
[[nodiscard]] std::vector<Tensors> room_on_host(const std::vector<Tensors>& lists);

// Writes the host's values into the card's tensors without autograd seeing it, as NCCL does.
void bring_back(const at::Tensor& from, const at::Tensor& to);
void bring_back(const Tensors& from, const Tensors& to);
void bring_back(const std::vector<Tensors>& from, const std::vector<Tensors>& to);

// Wraps host work that is still running; `finish` runs once, after the first wait.
[[nodiscard]] WorkPtr under_way(c10d::OpType type, WorkPtr host, Tensors results,
                                std::function<void()> finish);

}  // namespace headroom::parallel::detail
