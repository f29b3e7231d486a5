#include "headroom/formula/fit.h"

#include <algorithm>
#include <functional>

namespace headroom::formula {
namespace {

using namespace headroom::literals;

const ModelShape* largest(Bytes room, const std::function<Bytes(const ModelShape&)>& need) {
  const ModelShape* best = nullptr;
  for (const ModelShape& shape : standard_shapes())
    if (need(shape) <= room && (best == nullptr || parameters(shape) > parameters(*best)))
      best = &shape;
  return best;
}

std::string name_or_none(const ModelShape* shape) {
  return shape ? shape->name : "nothing";
}

}  // namespace

Bytes plannable(Bytes free) {
  return std::max(Bytes{0}, free - std::max(512_MiB, free / 20));
}

const ModelShape* largest_trainable(Bytes room, Technique technique, Batch batch) {
  return largest(room, [&](const ModelShape& shape) {
    return training_memory(shape, technique, batch).total();
  });
}

const ModelShape* largest_servable(Bytes room, Precision precision, Batch batch) {
  return largest(
      room, [&](const ModelShape& shape) { return inference_memory(shape, precision, batch); });
}

std::string good_for(Bytes room, Batch batch) {
  return "trains " + name_or_none(largest_trainable(room, Technique::mixed_checkpointed, batch)) +
         ", LoRA " + name_or_none(largest_trainable(room, Technique::lora, batch)) +
         ", 4-bit LoRA " + name_or_none(largest_trainable(room, Technique::lora_4bit, batch)) +
         "; runs " + name_or_none(largest_servable(room, Precision::fp16, batch)) + " in 16 bit, " +
         name_or_none(largest_servable(room, Precision::int4, batch)) + " in 4 bit";
}

}  // namespace headroom::formula
