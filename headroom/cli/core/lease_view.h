// Leases and waiting jobs as text, and the parts that `queue`, `who` and `lease list` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "headroom/cli/core/terminal.h"
#include "headroom/machine/lease_report.h"

namespace headroom::cli {

[[nodiscard]] std::string lease_table(const machine::LeaseReport& report, const Terminal& terminal);
[[nodiscard]] std::string waiting_table(const machine::LeaseReport& report,
                                        const Terminal& terminal);
[[nodiscard]] std::string warning_lines(const machine::LeaseReport& report,
                                        const Terminal& terminal);

// The common part of the three commands: same options, same document, different text.
struct LeaseOptions {
  std::string gpus;
  bool json = false;
};
void add_lease_options(CLI::App* command, LeaseOptions& options);
using LeaseText = std::string (*)(const machine::LeaseReport&, const Terminal&);
void show_leases(const LeaseOptions& options, bool with_holders, LeaseText text);

// "2 leases: 11.00 GiB reserved, of which 6.00 GiB are not used yet; 1 waits": one line for the
// picture of the machine; "" without leases and waiting jobs.
[[nodiscard]] std::string leases_at_a_glance(const machine::Look& look);

}  // namespace headroom::cli
