#include "headroom/rehearse/largest.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/plan/largest.h"

namespace headroom::rehearse {
namespace {

constexpr long long kMost = 1LL << 24;

// A batch that does not fit is rehearsed without a limit, to know its need.
answer::TriedSize tried(Orders orders, const edit::Knobs& knobs, long long batch) {
  const edit::Changed changed =
      knobs.with(batch, knobs.value(edit::Quantity::accumulation).value_or(1));
  if (!changed.files.empty())
    throw UsageError(expectation("--map", "an argument or a variable: rehearse changes no file",
                                 changed.files.begin()->first.string()));
  orders.command = changed.command;
  orders.environment = changed.environment;
  orders.hides_output = true;
  if (orders.say) orders.say("trying a batch of " + std::to_string(batch));
  const Rehearsal rehearsal = rehearse_with_need(orders);
  if (rehearsal.cards.empty() || (!rehearsal.ran_out_of_memory && !rehearsal.is_whole())) {
    if (orders.say) orders.say("the script's own output:\n" + rehearsal.hidden_output);
    throw UnavailableError("rehearse", "the script failed with a batch of " +
                                           std::to_string(batch) + "; its own output is above");
  }
  return {.size = batch,
          .fits = fits(rehearsal, orders.cards),
          .process = rehearsal.needs(tightest(rehearsal, orders.cards).index)};
}

}  // namespace

answer::Fit find_largest_batch(const Orders& orders, const edit::Knobs& knobs) {
  const auto first = knobs.value(edit::Quantity::batch);
  if (!first)
    throw UsageError(
        expectation("--fit", "a batch to change", "none", "--map \"--batch-size=batch\""));
  answer::Fit fit{.method = answer::Method::rehearsal,
                  .model = join(orders.command, " "),
                  .card = *std::min_element(orders.cards.begin(), orders.cards.end(),
                                            [](const auto& one, const auto& other) {
                                              return gpu::usable(one) < gpu::usable(other);
                                            })};
  const Bytes room = gpu::usable(fit.card);
  plan::Needs needs;
  const plan::LargestSize found =
      plan::find_largest({.at_most = kMost, .first = *first},
                         {.fits =
                              [&](std::int64_t batch) {
                                fit.tried.push_back(tried(orders, knobs, batch));
                                needs[batch] = fit.tried.back().process;
                                return fit.tried.back().fits;
                              },
                          .foresee = [&](std::int64_t batch) -> std::optional<bool> {
                            const auto line = plan::line_near(needs, room);
                            if (!line) return {};
                            return line->at(batch) <= room;
                          },
                          .guess =
                              [&] {
                                const answer::TriedSize& last = fit.tried.back();
                                return last.fits ? last.size * 2 : last.size / 2;
                              }});
  fit.size = found.size;
  fit.capped = found.capped;
  fit.is_proven = found.is_proven;
  return fit;
}

}  // namespace headroom::rehearse
