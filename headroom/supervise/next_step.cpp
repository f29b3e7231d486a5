#include "headroom/supervise/next_step.h"

#include "headroom/base/text.h"
#include "headroom/supervise/next_batch.h"

namespace headroom::supervise {
namespace {

using edit::Quantity;
using Kind = NextStep::Kind;

// The step with the next smaller batch, or without one the reason.
NextStep smaller_batch(const std::vector<Try>& tries, const Orders& orders,
                       const edit::Knobs& knobs) {
  if (!knobs.has(Quantity::batch))
    return {.kind = Kind::give_up,
            .why =
                "out of memory, and nothing is mapped that may be changed: "
                "try --map \"--batch-size=batch\" --map \"--accum=accumulation\""};
  if (const std::string why = why_batch_stays(orders, knobs); !why.empty())
    return {.kind = Kind::give_up, .why = "out of memory, and " + why};
  const NextBatch next = next_batch(tries, *knobs.value(Quantity::batch),
                                    knobs.value(Quantity::accumulation), orders.min_batch);
  if (!next.batch) return {.kind = Kind::give_up, .why = "out of memory: " + next.why};
  return {.kind = Kind::try_again,
          .why = next.why,
          .batch = next.batch,
          .accumulation = next.accumulation};
}

}  // namespace

std::string why_batch_stays(const Orders& orders, const edit::Knobs& knobs) {
  if (knobs.has(Quantity::accumulation) || !orders.keep_effective_batch) return "";
  return "with a smaller " + knobs.name(Quantity::batch) +
         " alone the effective batch would change; map the accumulation, too "
         "(--map \"--accum=accumulation\"), or allow it with --let-batch-change";
}

NextStep next_step(const std::vector<Try>& tries, const Orders& orders, const edit::Knobs& knobs,
                   std::optional<Bytes> room) {
  using namespace headroom::literals;
  const Try& last = tries.back();
  if (!last.end.started) return {.why = orders.command.front() + ": " + last.end.not_started};
  if (last.ended_stalled) return {.why = "ended because it was stalled"};
  const bool memory_failed = last.end.exit_code != 0 && !last.end.received && last.out_of_memory();
  if (!memory_failed) return {};
  const auto count = static_cast<long long>(tries.size());
  if (count > orders.max_retries)
    return {.kind = Kind::give_up,
            .why = "out of memory after " + counted(count, "try") +
                   ", the most that --max-retries allows"};
  NextStep step = smaller_batch(tries, orders, knobs);
  const bool of_card = last.judgement.verdict == oom::Verdict::gpu_oom;
  if (step.kind == Kind::try_again || !room || !of_card) return step;
  step.kind = Kind::find_room;
  const auto& asked = last.judgement.asked;
  step.room = last.peak && asked ? *last.peak + *asked : *room + 1_MiB;
  return step;
}

}  // namespace headroom::supervise
