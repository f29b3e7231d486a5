#include "headroom/lease/outer_lease.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/lease/lease_of_process.h"
#include "headroom/lease/ledger.h"

namespace headroom::lease {
namespace {

bool is_held_here_or_above(const Claim& claim) {
  const std::vector<Claim> alone{claim};
  Attribution attribution(alone);
  gpu::GpuProcess self;
  self.pid = this_process().pid;
  return std::any_of(claim.shares.begin(), claim.shares.end(), [&](const Share& share) {
    return attribution.lease_of(self, share.card) == claim.id;
  });
}

std::string amount_text(Bytes each, std::size_t cards) {
  return to_string(each) + (cards == 1 ? " on " : " on each of ") +
         counted(static_cast<long long>(cards), "card");
}

}  // namespace

std::optional<std::string> named_outer_lease() {
  auto id = environment("HEADROOM_LEASE");
  if (id && id->empty()) id.reset();
  return id;
}

std::optional<OuterLease> OuterLease::find(const Contents& contents) {
  const auto id = named_outer_lease();
  if (!id) return {};
  for (const Claim& lease : contents.leases)
    if (lease.id == *id && is_held_here_or_above(lease)) return OuterLease(lease);
  return {};
}

bool OuterLease::concerns(const gpu::Machine& machine) const {
  return cards_of(machine) > 0;
}

int OuterLease::cards_of(const gpu::Machine& machine) const {
  return static_cast<int>(std::count_if(
      machine.cards.begin(), machine.cards.end(),
      [&](const gpu::Card& card) { return reserved_on(claim_, card.uuid).count > 0; }));
}

gpu::Machine OuterLease::within(gpu::Machine machine, const Contents& contents) const {
  std::erase_if(machine.cards,
                [&](const gpu::Card& card) { return reserved_on(claim_, card.uuid).count == 0; });
  Contents others = contents;
  std::erase_if(others.leases, [&](const Claim& lease) { return lease.id == claim_.id; });
  return with_promises(std::move(machine), others);
}

void OuterLease::require(const gpu::DeviceRequest& request, const gpu::Machine& machine) const {
  std::vector<Bytes> shares;
  for (const gpu::Card& card : machine.cards)
    if (const Bytes share = reserved_on(claim_, card.uuid); share.count > 0)
      shares.push_back(share);
  const auto enough = std::count_if(shares.begin(), shares.end(),
                                    [&](Bytes share) { return share >= request.need; });
  if (enough >= request.count) return;
  const Bytes most = shares.empty() ? Bytes{0} : *std::max_element(shares.begin(), shares.end());
  throw UsageError("asked for " +
                   amount_text(request.need, static_cast<std::size_t>(request.count)) +
                   " inside lease " + claim_.id + ", which has " +
                   (shares.empty() ? "none of these cards" : amount_text(most, shares.size())) +
                   "; try a larger --need or --count of the outer headroom run, or start this "
                   "outside of it");
}

}  // namespace headroom::lease
