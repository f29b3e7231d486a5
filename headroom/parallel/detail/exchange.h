// From a card to the host's memory, across, and back.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>

#include "headroom/parallel/detail/done_work.h"

namespace headroom::parallel::detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Whether its values are sent. Told by its device's mode, type and size alone, so that all ranks
// tell the same.
[[nodiscard]] bool crosses(const at::Tensor& tensor);
[[nodiscard]] bool cross(const Tensors& tensors);
[[nodiscard]] bool cross(const std::vector<Tensors>& lists);

// Nothing crosses: what another rank has written there, nobody knows.
void forget(const Tensors& tensors);
void forget(const std::vector<Tensors>& lists);

// Contiguous, on the host; what is not known is zero there.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);
[[nodiscard]] Tensors on_host(const Tensors& tensors);
[[nodiscard]] std::vector<Tensors> on_host(const std::vector<Tensors>& lists);
// As large as these, to be written.
[[nodiscard]] at::Tensor room_on_host(const at::Tensor& tensor);
[[nodiscard]] Tensors room_on_host(const Tensors& tensors);
[[nodiscard]] std::vector<Tensors> room_on_host(const std::vector<Tensors>& lists);

// Writes the host's values into the card's tensors, behind autograd's back, as NCCL does.
void bring_back(const at::Tensor& from, const at::Tensor& to);
void bring_back(const Tensors& from, const Tensors& to);
void bring_back(const std::vector<Tensors>& from, const std::vector<Tensors>& to);

// Work of the host that is still under way; `finish` runs once, when somebody has waited for it.
[[nodiscard]] WorkPtr under_way(c10d::OpType type, WorkPtr host, Tensors results,
                                std::function<void()> finish);

}  // namespace headroom::parallel::detail
