#include "headroom/supervise/allowance.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/lease/ledger.h"
#include "headroom/lease/site.h"
#include "headroom/lease/steady_source.h"

namespace headroom::supervise {
namespace {

const gpu::Card* find_card(const gpu::Machine& machine, const gpu::Uuid& uuid) {
  for (const gpu::Card& card : machine.cards)
    if (card.uuid == uuid) return &card;
  return nullptr;
}

// At least `held`: the driver of a container may not know our process number.
Bytes used_by_us(const gpu::Machine& machine, const gpu::Uuid& uuid, Bytes held) {
  Bytes used{0};
  const gpu::Card* const card = find_card(machine, uuid);
  if (card == nullptr || !card->processes) return held;
  for (const gpu::GpuProcess& process : *card->processes)
    if (process.pid == ::getpid()) used += process.used.value_or(Bytes{0});
  return std::max(used, held);
}

Bytes usable_on(const gpu::Machine& machine, const gpu::Uuid& uuid) {
  const gpu::Card* const card = find_card(machine, uuid);
  return card == nullptr ? Bytes{0} : usable_now(*card).value_or(Bytes{0});
}

// The memory that a further lease could have on the card, behind all waiting jobs.
Bytes left_on(const lease::Look& look, const lease::Contents& now, const gpu::Uuid& card) {
  const lease::Rooms rooms =
      lease::left_by_earlier(lease::rooms_of(look, now), now.waiting, "", now.grants);
  const auto found = rooms.find(card);
  return found == rooms.end() ? Bytes{0} : found->second;
}

lease::Contents without(lease::Contents contents, const std::string& id) {
  std::erase_if(contents.leases, [&](const lease::Claim& lease) { return lease.id == id; });
  return contents;
}

}  // namespace

Allowance::Allowance(lease::Directory directory, const gpu::Devices& devices)
    : directory_(std::move(directory)),
      sampler_(std::make_unique<gpu::Sampler>(lease::steady(gpu::make_source(devices)),
                                              gpu::SamplerOptions{.keep_sampling = false})) {}

std::optional<Allowance> Allowance::find(const gpu::Devices& devices, std::optional<int> own) {
  try {
    auto directory = lease::Directory::existing();
    if (!directory) return {};
    const lease::Contents now = directory->contents();
    Allowance found(*directory, devices);
    for (const lease::Claim& claim : now.leases)
      if (own && !found.own_)
        found.own_ =
            lease::Lease::inherited(claim, *own, directory->path() / (claim.id + ".lease"));
    if (!found.own_) found.outer_ = lease::OuterLease::find(now);
    if (found.outer_ && !found.outer_->concerns(found.sampler_->fresh())) found.outer_.reset();
    if (found.own_ || found.outer_) return found;
  } catch (const Error&) {  // a machine whose leases are unknown has no place for a run either
  }
  return {};
}

Bytes Allowance::reserved(const gpu::Uuid& card) const {
  if (outer_) return reserved_on(outer_->claim(), card);
  return has_own() ? reserved_on(own_->claim(), card) : Bytes{0};
}

Allowance::OnCard Allowance::on(const gpu::Uuid& card, Bytes held) {
  const lease::Contents before = directory_.contents();
  const lease::Look look = lease::look_at(sampler_->fresh(), before);
  OnCard now{.reserved = reserved(card), .used = used_by_us(look.machine, card, held), .most = {}};
  const std::string& id = outer_ ? outer_->claim().id : own_->claim().id;
  const gpu::Machine others = lease::with_promises(look.machine, without(before, id));
  now.most = now.used + usable_on(others, card);
  if (outer_) {
    const auto of_card = look.used.find(card);
    Bytes of_lease = now.used;
    if (of_card != look.used.end())
      if (const auto found = of_card->second.find(id); found != of_card->second.end())
        of_lease = std::max(of_lease, found->second);
    now.most = std::min(now.most, now.reserved - (of_lease - now.used));
  } else if (has_own()) {
    Bytes more = left_on(look, before, card);
    if (const auto left = lease::Site::read().left(before, ::geteuid()))
      more = std::min(more, *left);
    now.most = std::min(now.most, std::max(now.reserved, now.used) + more);
  }
  now.most = std::max(now.most, Bytes{0});
  return now;
}

bool Allowance::reserve(const gpu::Uuid& card, Bytes bytes, Bytes held) {
  if (!has_own()) return bytes <= on(card, held).most;
  const Bytes now_reserved = reserved(card);
  if (bytes == now_reserved) return true;
  try {
    const lease::Contents before = directory_.contents();
    const bool grows = bytes > now_reserved;
    const lease::Look look = grows ? lease::look_at(sampler_->fresh(), before) : lease::Look{};
    const lease::Directory::Turn turn = directory_.take_turn();
    if (grows) {
      const lease::Contents now = turn.contents();
      const Bytes has = std::max(now_reserved, used_by_us(look.machine, card, held));
      if (bytes > has && bytes - has > left_on(look, now, card)) return false;
      if (lease::Site::read().over_limit(now, ::geteuid(), bytes - now_reserved, {card}))
        return false;
    }
    change(turn, card, bytes);
    return true;
  } catch (const Error&) {  // no turn in time, or a full folder: the lease is as it was
    return false;
  }
}

void Allowance::leave(const gpu::Uuid& card) {
  if (!has_own() || reserved(card) == Bytes{0}) return;
  try {
    change(directory_.take_turn(), card, Bytes{0});
  } catch (const Error&) {  // reserves too much until the process ends
  }
}

void Allowance::change(const lease::Directory::Turn& turn, const gpu::Uuid& card, Bytes bytes) {
  std::vector<lease::Share> shares = own_->claim().shares;
  std::erase_if(shares, [&](const lease::Share& share) { return share.card == card; });
  if (bytes > Bytes{0}) shares.push_back({card, bytes});
  turn.change_lease(*own_, std::move(shares));
}

std::optional<std::string> Allowance::news() {
  const auto by = own_ && !told_ ? own_->ended_by() : std::nullopt;
  if (!by) return {};
  told_ = true;
  return "lease " + own_->claim().id + " was ended by " + *by +
         ": the run goes on, but memory that it does not use yet is no longer reserved";
}

}  // namespace headroom::supervise
