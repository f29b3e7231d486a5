// Leases, waiting jobs and their needs, for `queue`, `who` and `lease list`.
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

// One card's share of a lease. An empty field is unknown: it was not looked up, or the process is
// invisible from here.
struct LeaseRow {
  lease::Claim claim;
  gpu::Uuid card;
  std::optional<int> card_index;
  Bytes reserved;
  std::optional<Bytes> used;
  std::optional<pid_t> pid;                   // the process that requested it
  std::optional<std::vector<pid_t>> holding;  // the visible processes that hold it now
};

struct WaitingRow {
  lease::Waiter waiter;
  std::optional<pid_t> pid;     // empty if invisible from here
  std::optional<int> position;  // empty if the waiter is stopped: others pass it
  std::string why;
};

struct LeaseReport {
  Look look;
  std::vector<LeaseRow> leases;
  std::vector<WaitingRow> waiting;
  std::vector<std::string> warnings;
};

// `with_holders` inspects every process of the machine.
[[nodiscard]] LeaseReport report_leases(const std::string& gpus, bool with_holders);
// The rows of `waiting` alone, for a look that was taken already.
[[nodiscard]] std::vector<WaitingRow> waiting_rows(const Look& look);

// The JSON document of all three commands.
[[nodiscard]] Json document(const LeaseReport& report);

[[nodiscard]] std::string lease_table(const LeaseReport& report, const Terminal& terminal);
[[nodiscard]] std::string waiting_table(const LeaseReport& report, const Terminal& terminal);
[[nodiscard]] std::string warning_lines(const LeaseReport& report, const Terminal& terminal);

// The common part of the three commands: same options, same document, different text.
struct LeaseOptions {
  std::string gpus;
  bool json = false;
};
void add_lease_options(CLI::App* command, LeaseOptions& options);
using LeaseText = std::string (*)(const LeaseReport&, const Terminal&);
void show_leases(const LeaseOptions& options, bool with_holders, LeaseText text);

// "2 leases: 11.00 GiB reserved, of which 6.00 GiB are not used yet; 1 waits": one line for the
// picture of the machine; empty without leases and waiting jobs.
[[nodiscard]] std::string leases_at_a_glance(const Look& look);

}  // namespace headroom::cli
