// Operators that ask which tensor it is: equal, is_set_to, record_stream.
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/reads.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

bool same_layout(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_alias_of(b) &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

// The comparison makes a mask of the tensors' size: of NaNs if both are the same memory, else, on
// CUDA, of equal elements (ATen/native/cuda/Equal.cpp, ATen/native/ReduceOps.cpp). In shape-only
// mode different memory is compared as it reads.
bool equal(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.numel() == 0) return a.sizes() == b.sizes();
  const bool same = same_layout(a, b);
  if (same ? a.is_floating_point() : follows_cuda()) {
    const Tensor mask = like(a, at::kBool);
    const Tensor answer = scalar(a, at::kBool);
  }
  Card& card = *detail::running.card;
  if (same || card.mode() != sim::Mode::shape_only || detail::running.knows) return same;
  card.note_decision();
  return detail::reads_equal(a, b);
}

}  // namespace

void add_identity(Table& table) {
  table.rule("equal", equal);
  table.rule("is_set_to", same_layout);
  const auto nothing_on_the_cpu = [](const Tensor&, c10::Stream) {};
  table.rule("record_stream", [](const Tensor& x, c10::Stream stream) {
    detail::device_allocator()->recordStream(x.storage().data_ptr(), stream);
  });
  table.fill("record_stream", nothing_on_the_cpu);
}

}  // namespace headroom::sim::rules
