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
  return shape != nullptr ? shape->name : "-";
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

Uses good_for(Bytes room, Batch batch) {
  const auto trains = [&](Technique technique) {
    return name_or_none(largest_trainable(room, technique, batch));
  };
  const auto runs = [&](Precision precision) {
    return name_or_none(largest_servable(room, precision, batch));
  };
  return {.full = trains(Technique::mixed_checkpointed),
          .lora = trains(Technique::lora),
          .lora_4bit = trains(Technique::lora_4bit),
          .run_16bit = runs(Precision::fp16),
          .run_4bit = runs(Precision::int4)};
}

std::string to_string(const Uses& uses) {
  const auto or_nothing = [](const std::string& size) { return size == "-" ? "nothing" : size; };
  return "trains " + or_nothing(uses.full) + ", LoRA " + or_nothing(uses.lora) + ", 4-bit LoRA " +
         or_nothing(uses.lora_4bit) + "; runs " + or_nothing(uses.run_16bit) + " in 16 bit, " +
         or_nothing(uses.run_4bit) + " in 4 bit";
}

}  // namespace headroom::formula
