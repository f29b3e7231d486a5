#include "headroom/lease/lease_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/text.h"

namespace headroom::lease {
namespace {

std::string shortened(const std::string& command) {
  constexpr std::size_t kWidth = 40;
  return command.size() > kWidth ? std::string(beginning(command, kWidth)) + "..." : command;
}

Bytes unused_by(const Look& look, const Claim& lease, const gpu::Uuid& card) {
  Bytes used{0};
  if (const auto on_card = look.used.find(card); on_card != look.used.end())
    if (const auto own = on_card->second.find(lease.id); own != on_card->second.end())
      used = own->second;
  return std::max(Bytes{0}, reserved_on(lease, card) - used);
}

}  // namespace

std::string user_of(const Entry& entry) {
  return entry.uid == 0 && !entry.user.empty() ? entry.user : user_name(entry.uid);
}

std::string describe(const Claim& claim) {
  const bool seen = is_this_pid_namespace(claim.pid_namespace);
  return fmt::format("lease {} of {}{} ({})", claim.id, user_of(claim),
                     seen ? ", PID " + std::to_string(claim.owner.pid) : "",
                     shortened(claim.command));
}

std::vector<std::string> long_unused(const Look& look, WallTime now) {
  std::vector<std::string> sentences;
  for (const Claim& lease : look.before.leases) {
    const Seconds age = now - lease.since;
    if (age < kLongUnused || lease.shares.empty()) continue;
    Bytes reserved{0};
    bool is_unused = true;
    for (const Share& share : lease.shares) {
      reserved += share.reserved;
      is_unused = is_unused && look.used.contains(share.card) &&
                  unused_by(look, lease, share.card) == reserved_on(lease, share.card);
    }
    if (is_unused)
      sentences.push_back(
          fmt::format("{} has reserved {} for {} and uses none of it; headroom lease end {}",
                      describe(lease), to_string(reserved), duration_text(age), lease.id));
  }
  return sentences;
}

std::string also_in_the_way(const Look& look, const std::vector<gpu::Uuid>& cards,
                            const std::string& id) {
  constexpr std::size_t kMost = 3;
  std::vector<std::pair<Bytes, const Claim*>> holders;
  for (const Claim& lease : look.before.leases) {
    Bytes most{0};
    for (const gpu::Uuid& card : cards) most = std::max(most, unused_by(look, lease, card));
    if (most.count > 0) holders.emplace_back(most, &lease);
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMost, holders.size()); ++i)
    names.push_back(
        fmt::format("{} by {}", to_string(holders[i].first), describe(*holders[i].second)));
  if (holders.size() > kMost) names.push_back(std::to_string(holders.size() - kMost) + " more");
  std::string text;
  if (!names.empty()) text += "; reserved and not yet used: " + join(names, ", ");
  const int place = position(look.before.waiting, id);
  const int all = position(look.before.waiting, "");
  if (all > 2 || place > 1)
    text += fmt::format("; number {} of {} in the queue", place, std::max(place, all - 1));
  for (const std::string& warning : look.before.warnings) text += "; " + warning;
  return text;
}

}  // namespace headroom::lease
