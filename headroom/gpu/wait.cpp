#include "headroom/gpu/wait.h"

#include <algorithm>
#include <map>

#include "headroom/base/interrupt.h"

namespace headroom::gpu {
namespace {

constexpr Seconds kBetweenTwoSamples{0.2};
constexpr Seconds kSecond{1.0};
// The longest wait of one look for a driver that does not answer.
constexpr Seconds kPatience{3.0};

class Waiting {
 public:
  Waiting(Sampler& sampler, const DeviceRequest& request, const WaitOptions& options)
      : sampler_(sampler), request_(request), options_(options) {}

  WaitResult run() {
    WaitResult result;
    while (true) {
      result.selection = look();
      result.waited = elapsed();
      result.cancelled = options_.cancel.stop_requested();
      if (result.cancelled) {  // maybe between the two samples: no decision
        result.selection.picked.clear();
        result.selection.cpu = false;
        return result;
      }
      // Waiting cannot add cards or make cards larger; everything else may change.
      if (no_cards_ && !result.selection.cpu) result.selection.cannot_be_met = true;
      const bool over = result.selection.cpu || result.selection.cannot_be_met;
      if (!result.selection.picked.empty() || over) return result;
      if (elapsed() >= options_.timeout) {
        result.timed_out = true;
        return result;
      }
      sleep_until_next_look(result.selection);
      result.waited = elapsed();
      result.cancelled = options_.cancel.stop_requested();
      if (result.cancelled) return result;
    }
  }

 private:
  [[nodiscard]] Seconds elapsed() const { return Clock::now() - start_; }

  Machine sample(Seconds patience) {
    Machine machine = sampler_.fresh(patience);
    return options_.narrow ? options_.narrow(std::move(machine)) : machine;
  }

  // One look: waits for a slow driver and confirms the choice if necessary.
  Selection look() {
    const auto begin = Clock::now();
    Machine machine = sample(kPatience);
    Selection selection = decide(machine, options_.usable);
    while (selection.stale && Clock::now() - begin < kPatience &&
           !options_.cancel.stop_requested()) {
      (void)sleep_for(Seconds(0.05), options_.cancel);
      if (waited_) report(selection);
      machine = sample(kPatience - (Clock::now() - begin));
      selection = decide(machine, options_.usable);
    }
    no_cards_ = machine.cards.empty() && !machine.silent;
    if (selection.picked.empty() || !needs_confirmation(selection, machine)) return selection;
    return confirmed(machine);
  }

  Selection decide(const Machine& machine, const Usable& usable) {
    DeviceRequest request = request_;
    // The CPU is the answer once the wait is over or useless, not at the first full card.
    request.allow_cpu = request_.allow_cpu && elapsed() >= options_.timeout;
    Selection selection = find_best_device(machine, request, usable);
    const bool of_no_use = selection.cannot_be_met || (machine.cards.empty() && !machine.silent);
    if (!request_.allow_cpu || !of_no_use) return selection;
    return find_best_device(machine, request_, usable);
  }

  bool needs_confirmation(const Selection& selection, const Machine& machine) {
    if (waited_) return true;
    if (!options_.recent_ends) return false;
    const std::set<Uuid> ended = options_.recent_ends(machine);
    return std::any_of(selection.picked.begin(), selection.picked.end(),
                       [&](const auto& pick) { return ended.contains(pick.card.uuid); });
  }

  // Decides again on a second sample; a card's usable memory is the smaller of both samples.
  Selection confirmed(const Machine& earlier) {
    std::map<Uuid, std::optional<Bytes>> before;
    for (const Card& card : earlier.cards) before[card.uuid] = options_.usable(card);
    (void)sleep_for(kBetweenTwoSamples, options_.cancel);
    return decide(sample(kPatience), [&](const Card& card) -> std::optional<Bytes> {
      const auto then = before.find(card.uuid);
      const auto now = options_.usable(card);
      if (then == before.end() || !then->second || !now) return {};
      return std::min(*then->second, *now);
    });
  }

  // About once a second, also while waiting for a hung driver.
  void report(const Selection& selection) {
    if (!options_.progress || elapsed() < next_report_) return;
    next_report_ = elapsed() + kSecond * 0.9;
    options_.progress({selection, request_, elapsed(), options_.timeout});
  }

  void sleep_until_next_look(const Selection& selection) {
    waited_ = true;
    const Seconds next = std::min(elapsed() + options_.interval, options_.timeout);
    while (elapsed() < next && !options_.cancel.stop_requested()) {
      if (options_.progress) options_.progress({selection, request_, elapsed(), options_.timeout});
      (void)sleep_for(std::min(kSecond, next - elapsed()), options_.cancel);
    }
  }

  Sampler& sampler_;
  const DeviceRequest& request_;
  const WaitOptions& options_;
  const Clock::time_point start_ = Clock::now();
  bool waited_ = false;
  bool no_cards_ = false;
  Seconds next_report_{0};
};

}  // namespace

WaitResult wait_for_gpu(Sampler& sampler, const DeviceRequest& request,
                        const WaitOptions& options) {
  return Waiting(sampler, request, options).run();
}

}  // namespace headroom::gpu
