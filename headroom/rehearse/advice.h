// Changes that a rehearsal tries by itself, each in one more run of the script.
#pragma once

#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/rehearse/rehearsal.h"

namespace headroom::rehearse {

// A change that can be switched on from outside a script (rehearsal/changes.py).
struct TriedChange {
  const char* name;
  const char* how;          // the user makes this change
  const char* needs;        // a script without it has nothing to change
  bool is_of_steps = true;  // a single step can be changed so, too
};
inline constexpr TriedChange kTriedChanges[] = {
    {"checkpointing",
     "checkpoint the model's blocks, with use_reentrant=False: "
     "model.gradient_checkpointing_enable(), or torch.utils.checkpoint",
     "a list of blocks of one class"},
    {"bf16-autocast",
     "forward and loss in torch.autocast(\"cuda\", torch.bfloat16); transformers' Trainer: "
     "bf16=True",
     "a trained model outside of autocast"},
    {"fused-optimizer", "the optimizer with fused=True",
     "torch's Adam, AdamW or SGD without fused=True"},
    {"8-bit-adamw", "bitsandbytes.optim.AdamW8bit (or Adam8bit) as the optimizer",
     "torch's AdamW or Adam"},
    {"half-micro-batch",
     "half the rows in a batch, and a step of the optimizer after every second one; transformers' "
     "Trainer: per_device_train_batch_size, gradient_accumulation_steps",
     "one optimizer, and a DataLoader whose batches have two rows or more", /*is_of_steps=*/false},
};
// One of them, rehearsed.
struct TriedAdvice {
  TriedChange change;
  bool was_made = false;  // the script has a place for the change
  Bytes needs, saves;     // of the process; saves may be negative
  Bytes allocated;        // the peak on the same card
  bool fits = false;

  [[nodiscard]] bool helps() const { return was_made && saves.count > 0; }
};

// Rehearses each change without a limit; the least need first. `needs_now`: that of the process
// without a change.
[[nodiscard]] std::vector<TriedAdvice> advice_for(const Orders& orders, Bytes needs_now);

[[nodiscard]] std::vector<TriedAdvice> least_first(std::vector<TriedAdvice> advice);

// `advice`: those that help; the names of the others.
[[nodiscard]] Json to_json(const std::vector<TriedAdvice>& advice,
                           answer::Method method = answer::Method::rehearsal);

}  // namespace headroom::rehearse
