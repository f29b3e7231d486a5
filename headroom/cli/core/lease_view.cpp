#include "headroom/cli/core/lease_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/lease/lease_text.h"

namespace headroom::cli {
namespace {

std::string size_or_unknown(std::optional<Bytes> size) {
  return size ? to_string(*size) : "?";
}

std::string age_text(WallTime since) {
  return duration_text(std::max(Seconds(0), Seconds(std::chrono::system_clock::now() - since)));
}

std::string number_text(std::optional<int> number) {
  return number ? std::to_string(*number) : "?";
}

// The holders if they were looked up, else the process that requested the lease.
std::string pids_text(const machine::LeaseRow& row) {
  const std::vector<pid_t> holding = row.holding.value_or(std::vector<pid_t>{});
  if (holding.empty()) return number_text(row.pid);
  std::vector<std::string> pids;
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(kMost, holding.size()); ++i)
    pids.push_back(std::to_string(holding[i]));
  if (holding.size() > kMost) pids.push_back("+" + std::to_string(holding.size() - kMost));
  return join(pids, ",");
}

}  // namespace

std::string lease_table(const machine::LeaseReport& report, const Terminal& terminal) {
  if (report.leases.empty()) return "There are no leases.\n";
  std::vector<std::vector<std::string>> rows;
  for (const machine::LeaseRow& row : report.leases)
    rows.push_back({row.card_index ? std::to_string(*row.card_index) : short_text(row.card),
                    row.claim.id, user_of(row.claim), to_string(row.reserved),
                    size_or_unknown(row.used), pids_text(row), age_text(row.claim.since),
                    fitted(row.claim.command, terminal.is_terminal ? 32 : 60, terminal)});
  return table(">GPU|lease|user|>reserved|>used|>PID|>age|command", rows, terminal);
}

std::string waiting_table(const machine::LeaseReport& report, const Terminal& terminal) {
  if (report.waiting.empty()) return "No job waits.\n";
  std::vector<std::vector<std::string>> rows;
  std::string whys;
  const int width = terminal.is_terminal ? terminal.width - 1 : 100;
  for (const machine::WaitingRow& row : report.waiting) {
    const lease::Waiter& waiter = row.waiter;
    std::string need = to_string(waiter.wish.need);
    if (waiter.wish.count > 1) need += " x " + std::to_string(waiter.wish.count);
    const std::string number = row.position ? std::to_string(*row.position) : "-";
    rows.push_back({number, number_text(row.pid), user_of(waiter), need, age_text(waiter.since),
                    fitted(waiter.command, 40, terminal)});
    whys += wrapped(row.why, " " + number + (row.position ? ". " : "  "),
                    std::string(number.size() + 3, ' '), width);
  }
  return table(">#|>PID|user|>needs|>waits|command", rows, terminal) + "\n" + whys;
}

std::string warning_lines(const machine::LeaseReport& report, const Terminal& terminal) {
  std::string text;
  for (const std::string& warning : report.warnings)
    text += wrapped(warning, " " + terminal.paint(terminal.warning(), Colour::yellow) + " ", "   ",
                    terminal.width - 1);
  return text;
}

void add_lease_options(CLI::App* command, LeaseOptions& options) {
  add_gpus_option(command, options.gpus);
  command->add_flag("--json", options.json, "Print one JSON document (sizes in bytes)");
}

void show_leases(const LeaseOptions& options, bool with_holders, LeaseText text) {
  const machine::LeaseReport report = machine::report_leases(options.gpus, with_holders);
  const Terminal terminal = standard_output();
  print(options.json ? to_line(document(report)) + "\n"
                     : text(report, terminal) + warning_lines(report, terminal));
}

std::string leases_at_a_glance(const machine::Look& look) {
  const auto& leases = look.leases.leases;
  const auto& waiting = look.leases.waiting;
  if (leases.empty() && waiting.empty()) return {};
  Bytes reserved{0}, promised{0};
  for (const lease::Claim& claim : leases)
    for (const lease::Share& share : claim.shares) reserved += share.reserved;
  for (const gpu::Card& card : look.machine.cards) promised += card.withheld.now;
  std::string text = counted(static_cast<long long>(leases.size()), "lease") + ": " +
                     to_string(reserved) + " reserved, of which " + to_string(promised) +
                     " are not used yet (headroom who)";
  if (!waiting.empty())
    text += "; " + std::to_string(waiting.size()) + (waiting.size() == 1 ? " waits" : " wait") +
            " (headroom queue)";
  return text;
}

}  // namespace headroom::cli
