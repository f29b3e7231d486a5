#include "headroom/lease/ledger.h"

#include <algorithm>
#include <map>

#include "headroom/base/error.h"

namespace headroom::lease {
namespace {

bool holds_any(const Look& look, const Contents& now, const gpu::Uuid& card) {
  const auto has = [&](const Claim& lease) { return reserved_on(lease, card).count > 0; };
  return std::any_of(now.leases.begin(), now.leases.end(), has) ||
         std::any_of(look.before.leases.begin(), look.before.leases.end(), has);
}

// The card with its unused reservations.
gpu::Card charged(const Look& look, const Contents& now, gpu::Card card) {
  // A card for one process at a time belongs to its lease even before the job starts.
  const bool exclusive = card.compute_mode == gpu::ComputeMode::exclusive_process ||
                         card.compute_mode == gpu::ComputeMode::exclusive_thread;
  card.withheld.now = unused(look, now, card.uuid);
  card.withheld.everything =
      !now.unreadable_leases.empty() || (exclusive && holds_any(look, now, card.uuid));
  return card;
}

}  // namespace

Bytes margin_of(const gpu::Card& card) {
  return card.simulated ? Bytes{0} : kMargin;
}

Bytes usable_when_empty(const gpu::Card& card) {
  if (!card.memory) return Bytes{0};
  return std::max(Bytes{0},
                  card.memory->total - card.memory->reserved.value_or(Bytes{0}) - margin_of(card));
}

Look look_at(gpu::Machine machine, Contents before) {
  for (gpu::Card& card : machine.cards) card.withheld.always = margin_of(card);
  Look look{.machine = std::move(machine), .before = std::move(before), .used = {}, .lease_of = {}};
  Attribution attribution(look.before.leases);
  for (const gpu::Card& card : look.machine.cards)
    if (auto used = attribution.used_on(card)) look.used[card.uuid] = *std::move(used);
  look.lease_of = attribution.found();
  return look;
}

Bytes unused(const Look& look, const Contents& now, const gpu::Uuid& card) {
  static const UsedByLease kNone;
  const auto found = look.used.find(card);
  const UsedByLease& used = found == look.used.end() ? kNone : found->second;
  // The same lease may appear in several lists, and any user may write a grant under its name.
  std::map<std::string, Bytes> reserved;
  const auto count = [&](const std::string& id, Bytes amount) {
    if (amount.count > 0) reserved[id] = std::max(reserved[id], amount);
  };
  for (const Claim& lease : now.leases) count(lease.id, reserved_on(lease, card));
  for (const Claim& lease : look.before.leases) count(lease.id, reserved_on(lease, card));
  for (const Grant& grant : now.grants) {
    if (grant.at_ns < look.before.at_ns) continue;
    for (const Share& share : grant.shares)
      if (share.card == card) count(grant.id, share.reserved);
  }
  Bytes sum{0};
  for (const auto& [id, amount] : reserved) {
    const auto own = used.find(id);
    sum += std::max(Bytes{0}, amount - (own == used.end() ? Bytes{0} : own->second));
    sum = std::min(sum, kMostReserved);
  }
  return sum;
}

Rooms rooms_of(const Look& look, const Contents& now, Clock::time_point at) {
  Rooms rooms;
  const Seconds old{static_cast<double>(now.at_ns - look.before.at_ns) * 1e-9};
  if (old > kLookFreshFor || !now.unreadable_leases.empty()) return rooms;
  for (const gpu::Card& card : look.machine.cards) {
    if (!is_fresh(card, at) || card.stuck || card.mig_enabled) continue;
    if (const auto room = usable_now(charged(look, now, card))) rooms[card.uuid] = *room;
  }
  return rooms;
}

gpu::Machine with_promises(gpu::Machine machine, const Contents& contents) {
  return with_promises(look_at(std::move(machine), contents));
}

gpu::Machine with_promises(const Look& look) {
  gpu::Machine shown = look.machine;
  for (gpu::Card& card : shown.cards) card = charged(look, look.before, std::move(card));
  return shown;
}

Contents contents_now() {
  Contents none;
  try {
    const auto directory = Directory::existing();
    return directory ? directory->contents() : none;
  } catch (const BusyError& error) {
    none.unreadable_leases.emplace_back("all of them");
    none.warnings.push_back(error.sentence());
  } catch (const UnavailableError& error) {
    none.warnings.push_back(error.sentence());
  }
  return none;
}

}  // namespace headroom::lease
