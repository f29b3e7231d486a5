// What a tensor is rather than what it holds.
#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/executing.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

bool same_layout(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_alias_of(b) &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

// Shape-only, every value is zero: what is of the same shape is equal.
bool equal(const Tensor& a, const Tensor& b) {
  Card& card = *detail::executing.card;
  if (card.mode() == Mode::shape_only) card.note_value_read();
  return a.sizes() == b.sizes();
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
