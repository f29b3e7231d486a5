// Events of a training run that memory caused: each failure, the decision that followed, and the
// figures behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/train/plan.h"

namespace headroom::train {

struct Event {
  enum class Kind {
    spill,       // memory ran out, and the attempt went on: what is needed later moved to the host
    oom,         // memory ran out in an attempt
    trim,        // the allocator's cache went back to the driver
    retry,       // the same plan again
    allocator,   // other settings of the allocator
    shrink,      // a smaller micro-batch
    grow,        // a larger one
    thrash,      // the allocator emptied its cache in consecutive steps to serve requests
    technique,   // checkpointing, fused loss, offload, frozen weights in fewer bits
    device,      // another device
    restore,     // a checkpoint was loaded
    checkpoint,  // a checkpoint was saved
    unpriced,    // the step chooses plans without knowing what they need
  };
  Kind kind = Kind::oom;
  std::int64_t step = 0;  // the one that runs, from 1
  bool spurious = false;  // of an oom: the same plan succeeded when it was run again
  std::optional<Bytes> asked, free, cached, neighbours;
  std::int64_t requests = 0;   // of a spill: those that were refused at first
  std::optional<Bytes> moved;  // of a spill: to the host, in this step
  std::string device = {};     // of the rank that failed, if there are several
  Plan from, to;
  // The error of a plan that failed for a reason other than memory; for `unpriced`, the reason.
  std::string why = {};
};

[[nodiscard]] const char* to_string(Event::Kind kind);
// "step 17: out of memory, 2.00 GiB asked, 1.10 GiB free"
// "step 17: out of memory at 2 requests, 1.10 GiB moved to the host, and the step went on"
// "step 17: smaller parts: micro-batch 32 -> micro-batch 24"
[[nodiscard]] std::string to_string(const Event& event);
[[nodiscard]] Json to_json(const Event& event);

}  // namespace headroom::train
