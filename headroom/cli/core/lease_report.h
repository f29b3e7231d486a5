// Who has leases, who waits and for what: what `queue`, `who` and `lease list` show.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/look.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/lease/ledger.h"

namespace headroom::cli {

// One card's share of a lease. Empty is unknown: what was not looked at, a process that cannot be
// seen from here.
struct LeaseRow {
  lease::Claim claim;
  gpu::Uuid card;
  std::optional<int> card_index;
  Bytes reserved;
  std::optional<Bytes> used;
  std::optional<pid_t> pid;                   // who asked for it
  std::optional<std::vector<pid_t>> holding;  // who holds it now, as far as they may be seen
};

struct WaitingRow {
  lease::Waiter waiter;
  std::optional<pid_t> pid;     // empty where it cannot be seen from here
  std::optional<int> position;  // empty for one that is stopped: nobody waits for it
  std::string why;
};

struct LeaseReport {
  Look look;
  std::vector<LeaseRow> leases;
  std::vector<WaitingRow> waiting;
  std::vector<std::string> warnings;
};

// `with_holders` looks at every process of the machine.
[[nodiscard]] LeaseReport report_leases(const std::string& gpus, bool with_holders);

// The one document of all three commands.
[[nodiscard]] Json document(const LeaseReport& report);

[[nodiscard]] std::string lease_table(const LeaseReport& report, const Terminal& terminal);
[[nodiscard]] std::string waiting_table(const LeaseReport& report, const Terminal& terminal);
[[nodiscard]] std::string warning_lines(const LeaseReport& report, const Terminal& terminal);

// What the three commands are: the same options, the same document, each its own text.
struct LeaseOptions {
  std::string gpus;
  bool json = false;
};
void add_lease_options(CLI::App* command, LeaseOptions& options);
using LeaseText = std::string (*)(const LeaseReport&, const Terminal&);
void show_leases(const LeaseOptions& options, bool with_holders, LeaseText text);

// "2 leases: 11.00 GiB reserved, of which 6.00 GiB are not used yet; 1 waits": what the picture of
// the machine says of them; empty if nobody has or wants any.
[[nodiscard]] std::string leases_at_a_glance(const Look& look);

}  // namespace headroom::cli
