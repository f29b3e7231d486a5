#include "headroom/sim/tensor.h"

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/reads.h"

namespace headroom::sim {

std::optional<std::uint64_t> address_of(const c10::Storage& storage) {
  const detail::Block* const block = detail::block_of(storage);
  if (block == nullptr) return {};
  return block->card->block(block->id).address;
}

std::optional<std::uint64_t> address_of(const at::TensorBase& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return {};
  return address_of(tensor.storage());
}

bool lives(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return true;
  const Card* const card = detail::find_card(tensor.device().index());
  const detail::Block* const block =
      tensor.has_storage() ? detail::block_of(tensor.storage()) : nullptr;
  return card != nullptr && (block == nullptr || block->card.get() == card);
}

bool knows_values(const at::Tensor& tensor) {
  const Card* const card = detail::find_card(tensor.device().index());
  if (card == nullptr || !lives(tensor)) return false;
  return card->mode() == Mode::compute || (detail::is_knowable(tensor) && detail::is_known(tensor));
}

void forget_values(const at::Tensor& tensor) {
  if (detail::on_card(tensor) &&
      detail::card_at(tensor.device().index()).mode() == Mode::shape_only)
    detail::forget(tensor);
}

}  // namespace headroom::sim
