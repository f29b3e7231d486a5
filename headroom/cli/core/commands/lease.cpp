// `headroom lease list`, `headroom lease end`: the reservations of this machine.
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/registry.h"
#include "headroom/lease/lease_text.h"

namespace headroom::cli {
namespace {

ExitCode run_lease(const LeaseOptions& options) {
  show_leases(options, false, &lease_table);
  return kOk;
}

struct EndOptions {
  std::vector<std::string> ids;
  bool json = false;
};

const lease::Claim& named(const std::string& id, const lease::Contents& now) {
  std::vector<std::string> known;
  for (const lease::Claim& lease : now.leases) {
    if (lease.id == id) return lease;
    known.push_back(lease.id);
  }
  throw UsageError(expectation("lease end", "the ID of a lease", id,
                               nearest(id, known).value_or("headroom lease list")));
}

std::string ended_text(const lease::Claim& lease) {
  Bytes reserved{0};
  for (const lease::Share& share : lease.shares) reserved += share.reserved;
  return "Ended " + describe(lease) + ": " + to_string(reserved) + " on " +
         counted(static_cast<long long>(lease.shares.size()), "card") +
         " are no longer reserved. The job is notified and runs on.\n";
}

// Ends all of them or none: a wrong ID is reported before any change.
ExitCode end(const EndOptions& options) {
  const auto directory = lease::Directory::existing();
  if (!directory) (void)named(options.ids.front(), {});
  const lease::Directory::Turn turn = directory->take_turn();
  const lease::Contents now = turn.contents();
  std::vector<lease::Claim> leases;
  for (const std::string& id : options.ids) leases.push_back(named(id, now));
  Json ended = Json::array();
  for (const lease::Claim& lease : leases) {
    turn.end_lease(lease);
    ended.push_back(lease.id);
    if (!options.json) print(ended_text(lease));
  }
  if (options.json) print(to_line({{"schema", 1}, {"ended", ended}}) + "\n");
  return kOk;
}

void add_end(Registry& registry, CLI::App* group) {
  auto [command, options] =
      registry.add(&end, "end", "End a lease, so that its memory is no longer reserved",
                   "  headroom lease end 7f3a9c1e\n\n"
                   "Only its owner and root may end a lease. The job is notified and runs on with "
                   "the memory that\n"
                   "it has. To end the job itself, end its process (headroom who names it).",
                   group);
  command->add_option("id", options->ids, "IDs of the leases, as headroom lease list shows them")
      ->required();
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace

void add_lease(Registry& registry) {
  CLI::App* group = registry.add("lease", "List and end leases, the reservations of GPU memory",
                                 "  headroom lease list\n  headroom lease end 7f3a9c1e");
  group->require_subcommand(1);
  auto [command, options] =
      registry.add(&run_lease, "list", "List the leases of all users on this machine",
                   "  headroom lease list\n"
                   "  headroom lease list --json | jq '.leases[].reserved_bytes'",
                   group);
  add_lease_options(command, *options);
  add_end(registry, group);
}

}  // namespace headroom::cli
