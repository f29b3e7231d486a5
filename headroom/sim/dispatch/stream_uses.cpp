#include "headroom/sim/dispatch/stream_uses.h"

#include <array>

#include "headroom/sim/card.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/pinned.h"
#include "headroom/sim/device/register_device.h"
#include "headroom/sim/device/streams.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

// Null if it is not memory of a card.
MemoryUses* uses_of(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage()) return nullptr;
  Block* const block = block_of(tensor.storage());
  return block == nullptr ? nullptr : &block->uses;
}

StreamOfCard stream_now(const Tensor& tensor) {
  const int card = tensor.device().index();
  return {card, current_stream(card)};
}
StreamOfCard stream_now(const Card& card) {
  return {card.index(), current_stream(card.index())};
}

StreamOrder* order_of(const Tensor& tensor) {
  return card_at(tensor.device().index()).stream_order();
}

}  // namespace

std::uint64_t launch_on_stream(const Call& call) {
  StreamOrder* const order = call.card->stream_order();
  if (order == nullptr || !call.op.uses_memory) return 0;
  c10::SmallVector<StreamOrder::Touch, 8> touched;
  for (std::size_t i = 0; i < call.op.arguments; ++i)
    libtorch::for_each_tensor(call.stack[call.first + i], [&](const Tensor& tensor) {
      if (MemoryUses* const uses = uses_of(tensor))
        touched.push_back({uses, call.op.is_written(i)});
    });
  return order->launch(stream_now(*call.card), call.op.name, touched);
}

void results_on_stream(const Call& call, std::uint64_t launched) {
  StreamOrder* const order = call.card->stream_order();
  if (order == nullptr || !call.op.uses_memory) return;
  c10::SmallVector<MemoryUses*, 4> made;
  call.for_each_tensor([&](const Tensor& tensor) {
    if (MemoryUses* const uses = uses_of(tensor)) made.push_back(uses);
  });
  order->results(stream_now(*call.card), call.op.name, launched, made);
  // CUDA copies a size or a value to the host, and waits for it.
  if (call.op.depends_on_values) order->synchronize(stream_now(*call.card));
}

// Source: aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda and copy_device_to_device. Between
// cards the copy runs on the source's stream, and both streams wait for each other.
void copy_on_stream(const Tensor& from, const Tensor& to, bool non_blocking) {
  const Tensor& first = on_card(from) ? from : to;
  StreamOrder* const order = order_of(first);
  if (order == nullptr) return;
  const StreamOfCard stream = stream_now(first);
  const bool on_cards = on_card(from) && on_card(to);
  const StreamOfCard other = on_cards ? stream_now(to) : stream;
  if (other != stream) order->wait(stream, order->record(other));
  c10::SmallVector<StreamOrder::Touch, 2> touched;
  if (MemoryUses* const uses = uses_of(from)) touched.push_back({uses, false});
  if (MemoryUses* const uses = uses_of(to)) touched.push_back({uses, true});
  order->launch(stream, "aten::copy_", touched);
  if (other != stream) order->wait(other, order->record(stream));
  // CUDA copies into memory that is not pinned before it returns.
  const bool to_pageable = !on_card(to) && !is_pinned(to.storage().data());
  if (!on_cards && (!non_blocking || to_pageable)) order->synchronize(stream);
}

void read_on_stream(const Tensor& tensor) {
  StreamOrder* const order = order_of(tensor);
  MemoryUses* const uses = uses_of(tensor);
  if (order == nullptr || uses == nullptr) return;
  order->launch(stream_now(tensor), "aten::_local_scalar_dense",
                std::array{StreamOrder::Touch{uses, false}});
  order->synchronize(stream_now(tensor));
}

}  // namespace headroom::sim::detail
