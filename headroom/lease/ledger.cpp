#include "headroom/lease/ledger.h"

#include <algorithm>
#include <set>

#include "headroom/base/error.h"

namespace headroom::lease {
namespace {

bool is_fresh(const gpu::Card& card, Clock::time_point now) {
  const auto old = age(card, now);
  return old && *old <= gpu::kFreshFor && !card.stuck;
}

bool holds_any(const Look& look, const Contents& now, const gpu::Uuid& card) {
  const auto has = [&](const Claim& lease) { return reserved_on(lease, card).count > 0; };
  return std::any_of(now.leases.begin(), now.leases.end(), has) ||
         std::any_of(look.before.leases.begin(), look.before.leases.end(), has);
}

// What a card could give if nobody had a lease on it.
std::optional<Bytes> free_for_leases(const Look& look, const Contents& now, gpu::Card card) {
  card.promised = Bytes{0};
  // A card for one process at a time is its lease's before that has begun.
  const bool exclusive = card.compute_mode == gpu::ComputeMode::exclusive_process ||
                         card.compute_mode == gpu::ComputeMode::exclusive_thread;
  if (exclusive && holds_any(look, now, card.uuid)) return Bytes{0};
  return usable_now(card);
}

}  // namespace

Look look_at(gpu::Machine machine, Contents before) {
  Look look{.machine = std::move(machine), .before = std::move(before), .used = {}};
  Attribution attribution(look.before.leases);
  for (const gpu::Card& card : look.machine.cards) look.used[card.uuid] = attribution.used_on(card);
  return look;
}

Bytes unused(const Look& look, const Contents& now, const gpu::Uuid& card) {
  static const UsedByLease kNobody;
  const auto found = look.used.find(card);
  const UsedByLease& used = found == look.used.end() ? kNobody : found->second;
  Bytes sum{0};
  std::set<std::string> counted;
  const auto count = [&](const std::string& id, Bytes reserved) {
    if (reserved.count == 0 || !counted.insert(id).second) return;
    const auto own = used.find(id);
    sum += std::max(Bytes{0}, reserved - (own == used.end() ? Bytes{0} : own->second));
  };
  for (const Claim& lease : now.leases) count(lease.id, reserved_on(lease, card));
  for (const Claim& lease : look.before.leases) count(lease.id, reserved_on(lease, card));
  for (const Grant& grant : now.grants) {
    if (grant.at_ns < look.before.at_ns) continue;
    for (const Share& share : grant.shares)
      if (share.card == card) count(grant.id, share.reserved);
  }
  return sum;
}

Rooms rooms_of(const Look& look, const Contents& now, Clock::time_point at) {
  Rooms rooms;
  const Seconds old{static_cast<double>(now.at_ns - look.before.at_ns) * 1e-9};
  if (old > kLookFreshFor || !now.riddles.empty()) return rooms;
  for (const gpu::Card& card : look.machine.cards) {
    if (!is_fresh(card, at) || card.mig_enabled) continue;
    const auto free = free_for_leases(look, now, card);
    if (!free) continue;
    rooms[card.uuid] = std::max(Bytes{0}, *free - unused(look, now, card.uuid) - kMargin);
  }
  return rooms;
}

gpu::Machine with_promises(gpu::Machine machine, const Contents& contents) {
  const Look look = look_at(std::move(machine), contents);
  gpu::Machine shown = look.machine;
  for (gpu::Card& card : shown.cards) {
    card.promised = unused(look, contents, card.uuid);
    if (!contents.riddles.empty() && card.memory) card.promised = card.memory->free;
  }
  return shown;
}

Contents contents_now() {
  try {
    const auto directory = Directory::existing();
    return directory ? directory->contents() : Contents{};
  } catch (const BusyError& error) {
    Contents unknown;
    unknown.warnings.emplace_back(error.what());
    return unknown;
  }
}

}  // namespace headroom::lease
