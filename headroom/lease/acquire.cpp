#include "headroom/lease/acquire.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/lease/detail/folder_watch.h"
#include "headroom/lease/lease_text.h"
#include "headroom/lease/ledger.h"
#include "headroom/lease/site.h"

namespace headroom::lease {
namespace {

using namespace headroom::literals;

constexpr Seconds kBetweenTwoSamples{0.2};
constexpr Seconds kSecond{1.0};
// After a lease or process ends, its memory comes back within seconds: look often at first, then
// less often. Looking takes at most a third of the time, because the driver serialises its callers.
constexpr Seconds kOften{0.02}, kOftenFor{3.0}, kDrainsWithin{10.0};

gpu::DeviceRequest resolved(gpu::DeviceRequest request, Amount amount) {
  // Never grant an empty lease.
  if (amount == Amount::all_usable) request.need = std::max(request.need, 1_MiB);
  return request;
}

class Seeker {
 public:
  Seeker(const Directory& directory, gpu::Sampler& sampler, const gpu::DeviceRequest& request,
         const gpu::WaitOptions& options, std::string command, Amount amount)
      : directory_(directory),
        sampler_(sampler),
        request_(resolved(request, amount)),
        options_(options),
        command_(std::move(command)),
        amount_(amount) {
    if (options_.timeout > Seconds(0)) watch_.emplace(directory_.path());
  }

  Acquired run() {
    Acquired got;
    while (true) {
      got.wait = look(false);
      if (got.wait.cancelled) return got;
      if (const auto why = over_limit(look_.before)) return refused(std::move(got), *why);
      if (!got.wait.selection.picked.empty()) {
        got.lease = try_to_take(got.wait.selection);
        if (got.lease) return got;
        if (!not_allowed_.empty()) return refused(std::move(got), not_allowed_);
        if (may_try_again()) continue;
      } else if (!got.wait.timed_out) {
        return with_cpu(std::move(got));
      }
      if (elapsed() >= options_.timeout) return timed_out(std::move(got));
      line_up(got.wait.selection);
      sleep_until_next_look(got.wait.selection);
      if (options_.cancel.stop_requested()) return cancelled(std::move(got));
    }
  }

 private:
  [[nodiscard]] Seconds elapsed() const { return Clock::now() - start_; }
  // Empty while it is not in the queue: then it is behind all waiters.
  [[nodiscard]] std::string id() const { return place_ ? place_->id() : ""; }

  // ---- Looking ----

  // One look without waiting, confirmed by a second one if necessary.
  gpu::WaitResult look(bool allow_cpu) {
    if (place_) place_->touch();
    const Contents before = directory_.contents();
    gpu::WaitOptions once;
    once.cancel = options_.cancel;
    const auto begin = Clock::now();
    bool first = true;
    once.narrow = [&](gpu::Machine machine) {
      if (std::exchange(first, false)) cost_ = Clock::now() - begin;
      return remember(std::move(machine), before);
    };
    once.usable = [this](const gpu::Card& card) { return usable(card); };
    doubtful_.clear();
    once.recent_ends = [this](const gpu::Machine& machine) {
      return doubtful_ = unconfirmed(machine);
    };
    gpu::DeviceRequest request = request_;
    request.allow_cpu = allow_cpu;
    gpu::WaitResult result = wait_for_gpu(sampler_, request, once);
    result.waited = elapsed();
    if (result.selection.picked.empty()) explain(result);
    return result;
  }

  gpu::Machine remember(gpu::Machine machine, const Contents& before) {
    for (const gpu::Card& card : machine.cards) {
      const auto free = usable_now(card);
      if (!free || *free < request_.need)
        free_since_.erase(card.uuid);
      else if (card.sampled)
        free_since_.emplace(card.uuid, *card.sampled);
    }
    look_ = look_at(std::move(machine), before);
    rooms_ = rooms_of(look_, before);
    left_ = left_by_earlier(rooms_, before.waiting, id(), before.grants);
    gpu::Machine mine = options_.narrow ? options_.narrow(look_.machine) : look_.machine;
    cards_.clear();
    for (const gpu::Card& card : mine.cards)
      if (!card.mig_enabled) cards_.push_back(card.uuid);
    mine_ = mine;
    return mine;
  }

  [[nodiscard]] std::optional<Bytes> usable(const gpu::Card& card) const {
    const auto asked = options_.usable(card);
    if (!asked || !rooms_.contains(card.uuid)) return {};
    const auto left = left_.find(card.uuid);
    return left == left_.end() ? Bytes{0} : std::min(*asked, left->second);
  }

  // Cards on which one sample is not enough: a process ended there, or the memory was not free yet
  // at the last look.
  [[nodiscard]] std::set<gpu::Uuid> unconfirmed(const gpu::Machine& machine) const {
    std::set<gpu::Uuid> cards;
    if (options_.recent_ends) cards = options_.recent_ends(machine);
    for (const gpu::Card& card : machine.cards) {
      const auto since = free_since_.find(card.uuid);
      const bool long_free =
          since != free_since_.end() && Clock::now() - since->second >= kBetweenTwoSamples;
      if (waited_ && !long_free) cards.insert(card.uuid);
      if (waited_ && long_free) cards.erase(card.uuid);
    }
    return cards;
  }

  // Adds leases and the queue, which the selection does not know.
  void explain(gpu::WaitResult& result) const {
    gpu::Selection& selection = result.selection;
    if (selection.stale || cards_.empty()) return;
    selection.sentence += also_in_the_way(look_, cards_, id());
  }

  // ---- Taking ----

  // std::nullopt if another job was first.
  std::optional<Lease> try_to_take(gpu::Selection& selection) {
    try {
      if (auto lease = take(selection)) return lease;
      selection.sentence = "another job took it first" + also_in_the_way(look_, cards_, id());
    } catch (const BusyError& error) {
      if (elapsed() >= options_.timeout && !options_.cancel.stop_requested()) throw;
      selection.sentence = error.sentence();
    }
    selection.picked.clear();
    return {};
  }

  // Jobs that looked at the same moment all saw the same card as the best. In its turn each one
  // chooses again, beside the leases that were taken since, so they spread over the cards.
  [[nodiscard]] std::vector<gpu::Selection::Pick> best_of(const Rooms& left,
                                                          const gpu::Selection& selection) const {
    const auto seen = [&](const gpu::Card& card) -> std::optional<Bytes> {
      for (const auto& pick : selection.picked)
        if (pick.card.uuid == card.uuid) return pick.usable;
      return doubtful_.contains(card.uuid) ? std::nullopt : options_.usable(card);
    };
    const auto room = [&](const gpu::Card& card) -> std::optional<Bytes> {
      const auto found = left.find(card.uuid);
      const auto most = seen(card);
      if (found == left.end() || !most) return {};
      return std::min(found->second, *most);
    };
    return find_best_device(mine_, request_, room).picked;
  }

  std::optional<Lease> take(gpu::Selection& selection) {
    const Directory::Turn turn = directory_.take_turn(Seconds(3.0), options_.cancel);
    const Contents now = turn.contents();
    const Rooms left = left_by_earlier(rooms_of(look_, now), now.waiting, id(), now.grants);
    selection.picked = best_of(left, selection);
    if (selection.picked.empty()) return {};
    Claim claim;
    claim.ticket = place_ ? place_->ticket() : 0;
    claim.user = user_;
    claim.command = command_;
    for (const auto& pick : selection.picked) {
      const Bytes all = std::min(pick.usable, most_of_each(now));
      claim.shares.push_back({pick.card.uuid, amount_ == Amount::all_usable ? all : request_.need});
    }
    not_allowed_ = over_limit(now, claim).value_or("");
    if (!not_allowed_.empty()) return {};
    Lease lease = turn.make_lease(std::move(claim), now);
    (void)turn.remove_dead(now);
    place_.reset();
    return lease;
  }

  // A look that was too old means that another job got its lease, so look again at once. On an
  // overloaded machine every look may be too old, so the number is limited.
  bool may_try_again() {
    constexpr int kMost = 20;
    if (options_.cancel.stop_requested()) return true;  // the next look reports it
    return ++losses_ % kMost != 0;
  }

  // ---- Limits of the site ----

  // Before cards are chosen.
  [[nodiscard]] std::optional<std::string> over_limit(const Contents& now) const {
    return site_.over_limit(now, ::geteuid(), request_.need * request_.count, {});
  }
  [[nodiscard]] std::optional<std::string> over_limit(const Contents& now,
                                                      const Claim& claim) const {
    Bytes asked{0};
    std::set<gpu::Uuid> cards;
    for (const Share& share : claim.shares) {
      asked += share.reserved;
      cards.insert(share.card);
    }
    return site_.over_limit(now, ::geteuid(), asked, cards);
  }
  // A job of unknown need takes the rest of the limit.
  [[nodiscard]] Bytes most_of_each(const Contents& now) const {
    const auto left = site_.left(now, ::geteuid());
    return left ? std::max(request_.need, *left / request_.count) : kMostReserved;
  }
  static Acquired refused(Acquired got, const std::string& why) {
    got.wait.selection.picked.clear();
    got.wait.selection.cannot_be_met = true;
    got.wait.selection.sentence = why;
    return got;
  }

  // ---- Waiting ----

  void line_up(const gpu::Selection& selection) {
    waited_ = true;
    if (place_) return;
    try {
      const Directory::Turn turn = directory_.take_turn(Seconds(3.0), options_.cancel);
      const Contents now = turn.contents();
      Waiter waiter;
      waiter.user = user_;
      waiter.command = command_;
      waiter.wish = {.need = request_.need, .count = request_.count, .cards = cards_};
      waiter.why = selection.sentence;
      place_ = turn.join_queue(std::move(waiter), now);
      (void)turn.remove_dead(now);
      changed_ = Clock::now();
    } catch (const BusyError&) {  // tries again after the next look
    }
  }

  // Later waiters let earlier ones look first.
  [[nodiscard]] Seconds pause_of_position(Seconds each) const {
    return each * std::min(position(look_.before.waiting, id()), 50);
  }

  [[nodiscard]] Clock::time_point next_look() const {
    const Seconds since = Clock::now() - changed_;
    Seconds pause = options_.interval;
    if (since < kOftenFor)
      pause = std::min(pause, pause_of_position(std::max(kOften, 2 * cost_)));
    else if (since < kDrainsWithin)
      pause = std::min(pause, pause_of_position(since / 10));
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::min(pause, options_.timeout - elapsed()));
  }

  void sleep_until_next_look(const gpu::Selection& selection) {
    const auto next = next_look();
    while (Clock::now() < next && !options_.cancel.stop_requested()) {
      if (place_) place_->touch();
      report(selection);
      if (!watch_->wait(std::min(kSecond, Seconds(next - Clock::now())), options_.cancel)) continue;
      changed_ = Clock::now();
      // The kernel reports the close before it drops the lock.
      (void)sleep_for(pause_of_position(Seconds(0.002)), options_.cancel);
      return;
    }
  }

  // About once a second.
  void report(const gpu::Selection& selection) {
    if (!options_.progress || elapsed() < next_report_) return;
    next_report_ = elapsed() + kSecond * 0.9;
    options_.progress({selection, request_, elapsed(), options_.timeout});
  }

  // ---- Ends without a lease ----

  // Chooses the CPU if allowed, once the wait is over or useless.
  Acquired with_cpu(Acquired got) {
    if (!request_.allow_cpu || got.wait.selection.stale) return got;
    got.wait = look(true);
    got.wait.selection.picked.clear();
    return got;
  }
  Acquired timed_out(Acquired got) {
    got = with_cpu(std::move(got));
    got.wait.timed_out = !got.wait.selection.cpu;
    return got;
  }
  Acquired cancelled(Acquired got) const {
    got.wait.cancelled = true;
    got.wait.waited = elapsed();
    return got;
  }

  const Directory& directory_;
  gpu::Sampler& sampler_;
  const gpu::DeviceRequest request_;
  const gpu::WaitOptions& options_;
  const std::string command_;
  const Amount amount_;
  const std::string user_ = user_of_this_process();
  const Clock::time_point start_ = Clock::now();
  const Site site_ = Site::read();
  std::string not_allowed_;
  std::optional<detail::FolderWatch> watch_;
  std::optional<PlaceInQueue> place_;

  // From the last look:
  Look look_;
  gpu::Machine mine_;             // the cards that may be picked
  std::set<gpu::Uuid> doubtful_;  // of them, those that need a second sample
  Rooms rooms_, left_;            // in total, and after earlier waiters
  std::vector<gpu::Uuid> cards_;
  std::map<gpu::Uuid, Clock::time_point> free_since_;
  Seconds cost_{0};  // of its first sample

  bool waited_ = false;
  int losses_ = 0;
  Clock::time_point changed_ = start_;  // the last change in the folder
  Seconds next_report_{0};

  static std::string user_of_this_process() {
    const ProcessTable processes;
    const auto stat = processes.stat(this_process().pid);
    const auto facts = stat ? processes.facts(*stat) : std::nullopt;
    return facts ? facts->user : "";
  }
};

}  // namespace

Acquired acquire(const Directory& directory, gpu::Sampler& sampler,
                 const gpu::DeviceRequest& request, const gpu::WaitOptions& options,
                 const std::string& command, Amount amount) {
  return Seeker(directory, sampler, request, options, command, amount).run();
}

}  // namespace headroom::lease
