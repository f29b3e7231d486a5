#include "headroom/machine/lease_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/lease/lease_of_process.h"
#include "headroom/lease/lease_text.h"

namespace headroom::machine {
namespace {

const gpu::Card* card_of(const gpu::Machine& machine, const gpu::Uuid& uuid) {
  const auto found = std::find_if(machine.cards.begin(), machine.cards.end(),
                                  [&](const gpu::Card& card) { return card.uuid == uuid; });
  return found == machine.cards.end() ? nullptr : &*found;
}

std::string name_of(const gpu::Machine& machine, const gpu::Uuid& uuid) {
  const gpu::Card* card = card_of(machine, uuid);
  return card == nullptr ? short_text(uuid) : label(*card);
}

LeaseRow row_of(const lease::Claim& claim, const lease::Share& share, const lease::Look& seen) {
  LeaseRow row{.claim = claim, .card = share.card, .reserved = share.reserved};
  const bool seen_here = lease::is_this_pid_namespace(claim.pid_namespace);
  if (seen_here) row.pid = claim.owner.pid;
  const gpu::Card* card = card_of(seen.machine, share.card);
  if (card != nullptr) row.card_index = card->index;
  const auto used = seen.used.find(share.card);
  if (used == seen.used.end()) return row;
  const auto own = used->second.find(claim.id);
  if (own != used->second.end()) row.used = own->second;
  // Processes of another namespace look like processes without a lease.
  if (own == used->second.end() && seen_here) row.used = Bytes{0};
  return row;
}

WaitingRow row_of(const lease::Waiter& waiter, const lease::Queue& queue) {
  WaitingRow row{.waiter = waiter};
  if (lease::is_this_pid_namespace(waiter.pid_namespace)) row.pid = waiter.owner.pid;
  if (waiter.looking) row.position = lease::position(queue, waiter.id);
  return row;
}

std::string shortfall_text(const lease::Waiter& waiter, const lease::Rooms& rooms,
                           const gpu::Machine& machine) {
  const gpu::Uuid* best = nullptr;
  Bytes most{-1};
  for (const gpu::Uuid& card : waiter.wish.cards) {
    const auto room = rooms.find(card);
    if (room == rooms.end() || room->second <= most) continue;
    most = room->second;
    best = &card;
  }
  // If its cards were not sampled, uses the waiter's own words, but only from this PID namespace.
  if (best == nullptr)
    return lease::is_this_pid_namespace(waiter.pid_namespace) ? waiter.why
                                                              : "its cards were not checked";
  const auto found =
      std::count_if(waiter.wish.cards.begin(), waiter.wish.cards.end(), [&](const auto& card) {
        const auto room = rooms.find(card);
        return room != rooms.end() && room->second >= waiter.wish.need;
      });
  const std::string of_gang =
      waiter.wish.count > 1
          ? std::to_string(found) + " of " + counted(waiter.wish.count, "card") + " found; "
          : "";
  std::string text =
      of_gang + "best is " + name_of(machine, *best) + " with " + to_string(most) + " usable";
  if (most < waiter.wish.need) return text + ", short by " + to_string(waiter.wish.need - most);
  return text + ", and too few cards have that much";
}

std::string why_waiting(const lease::Waiter& waiter, const lease::Rooms& rooms,
                        const lease::Contents& now, const gpu::Machine& machine) {
  if (!waiter.looking) return "stopped: it has not checked for 10 s and blocks no other job";
  if (!cards_for(rooms, waiter.wish)) {
    std::string text = shortfall_text(waiter, rooms, machine);
    const int passed = passes(waiter, now.grants);
    if (passed > 0) text += "; passed " + counted(passed, "time");
    return text;
  }
  const lease::Rooms left = left_by_earlier(rooms, now.waiting, waiter.id, now.grants);
  return cards_for(left, waiter.wish) ? "enough memory is usable: it is about to start"
                                      : "enough memory is usable, but kept for earlier jobs";
}

std::vector<WaitingRow> waiting_in(const lease::Look& seen, const lease::Contents& now) {
  std::vector<WaitingRow> rows;
  const lease::Rooms rooms = lease::rooms_of(seen, now);
  for (const lease::Waiter& waiter : now.waiting) {
    rows.push_back(row_of(waiter, now.waiting));
    rows.back().why = why_waiting(waiter, rooms, now, seen.machine);
  }
  return rows;
}

}  // namespace

LeaseReport report_leases(const std::string& gpus, bool with_holders) {
  LeaseReport report{.look = look_at_machine(gpus)};
  const lease::Contents& now = report.look.leases;
  report.warnings = now.warnings;
  const lease::Look& seen = report.look.seen;
  for (const std::string& sentence : long_unused(seen)) report.warnings.push_back(sentence);
  std::map<std::string, std::vector<pid_t>> holders;
  if (with_holders) holders = lease::descriptor_holders(now.leases);
  for (const lease::Claim& claim : now.leases) {
    for (const lease::Share& share : claim.shares) {
      report.leases.push_back(row_of(claim, share, seen));
      if (with_holders) report.leases.back().holding = holders[claim.id];
    }
  }
  report.waiting = waiting_in(seen, now);
  return report;
}

std::vector<WaitingRow> waiting_rows(const Look& look) {
  if (look.leases.waiting.empty()) return {};
  return waiting_in(look.seen, look.leases);
}

Json document(const LeaseReport& report) {
  Json json{{"schema", 1}, {"leases", Json::array()}, {"waiting", Json::array()}};
  for (const LeaseRow& row : report.leases)
    json["leases"].push_back({{"id", row.claim.id},
                              {"uuid", to_string(row.card)},
                              {"reserved_bytes", row.reserved.count},
                              {"used_bytes", or_null(row.used)},
                              {"pid", or_null(row.pid)},
                              {"user", user_of(row.claim)},
                              {"command", row.claim.command},
                              {"since", utc_timestamp(row.claim.since)},
                              {"holder_pids", or_null(row.holding)}});
  for (const WaitingRow& row : report.waiting) {
    const lease::Waiter& waiter = row.waiter;
    json["waiting"].push_back({{"pid", or_null(row.pid)},
                               {"user", user_of(waiter)},
                               {"need_bytes", waiter.wish.need.count},
                               {"count", waiter.wish.count},
                               {"position", or_null(row.position)},
                               {"since", utc_timestamp(waiter.since)},
                               {"why", row.why},
                               {"command", waiter.command}});
  }
  json["warnings"] = report.warnings;
  return json;
}

}  // namespace headroom::machine
