// `headroom who`: the memory of each card, reserved and used, and its processes.
#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/holders.h"
#include "headroom/gpu/select.h"
#include "headroom/lease/lease_text.h"

namespace headroom::cli {
namespace {

std::string size_or_unknown(std::optional<Bytes> size) {
  return size ? to_string(*size) : "?";
}

// "held by PID 12, 14"; adds a note if the process that requested the lease is gone.
std::string holders_text(const machine::LeaseRow& row) {
  const std::vector<pid_t> holding = row.holding.value_or(std::vector<pid_t>{});
  std::vector<std::string> pids;
  for (const pid_t pid : holding) pids.push_back(std::to_string(pid));
  if (pids.empty()) return "held by processes that cannot be seen from here";
  const bool owner_gone =
      row.pid && std::find(holding.begin(), holding.end(), *row.pid) == holding.end();
  std::string text = "held by PID " + join(pids, ", ");
  if (owner_gone) text += fmt::format(", although PID {}, which took it, has ended", *row.pid);
  return text;
}

std::string card_text(const gpu::Card& card, const machine::LeaseReport& report,
                      const Terminal& terminal) {
  const int width = terminal.is_terminal ? terminal.width - 1 : 100;
  std::string memory = "memory unknown";
  if (card.memory)
    memory = fmt::format("{} of {} used, another {} reserved, {} usable",
                         to_string(card.memory->used), to_string(card.memory->total),
                         to_string(card.withheld.now), size_or_unknown(usable_now(card)));
  std::string text =
      wrapped(memory, terminal.paint(label(card), Colour::bold) + "  ", "       ", width);
  bool any = false;
  for (const machine::LeaseRow& row : report.leases) {
    if (row.card != card.uuid) continue;
    any = true;
    text +=
        wrapped(fmt::format("lease {} of {}: {} reserved, {} used, {} ({})", row.claim.id,
                            user_of(row.claim), to_string(row.reserved), size_or_unknown(row.used),
                            holders_text(row), fitted(row.claim.command, 60, terminal)),
                "  ", "    ", width);
  }
  lease::Attribution attribution(report.look.leases.leases);
  for (const auto& process : card.processes.value_or(std::vector<gpu::GpuProcess>{})) {
    if (!attribution.lease_of(process, card.uuid).empty()) continue;
    any = true;
    text += wrapped("without a lease: " + gpu::describe(process), "  ", "    ", width);
  }
  // If processes are listed, a smaller amount is their CUDA contexts.
  const auto unlisted = gpu::unlisted_memory(card);
  if (unlisted && (!any || *unlisted >= Bytes{1LL << 30})) {
    any = true;
    text += wrapped(
        fmt::format("no listed process: {} (headroom clean explains)", to_string(*unlisted)), "  ",
        "    ", width);
  }
  if (!any) text += "  no lease and no process\n";
  return text;
}

std::string text_of(const machine::LeaseReport& report, const Terminal& terminal) {
  std::string text;
  for (const gpu::Card& card : report.look.machine.cards)
    if (!card.mig_enabled) text += card_text(card, report, terminal);
  if (report.look.machine.cards.empty()) text += lease_table(report, terminal);
  return text + "\n" + waiting_table(report, terminal);
}

ExitCode run_who(const LeaseOptions& options) {
  show_leases(options, true, &text_of);
  return kOk;
}

}  // namespace

void add_who(Registry& registry) {
  auto [command, options] = registry.add(
      &run_who, "who", "Show the leases, processes and waiting jobs of each GPU",
      "  headroom who\n"
      "  headroom who --gpus 0\n"
      "  headroom who --json | jq '.leases[] | {user, reserved_bytes, holder_pids}'\n\n"
      "A lease lives as long as a process holds its file descriptor; who names these processes.\n"
      "Without root, processes of other users may stay hidden.");
  add_lease_options(command, *options);
}

}  // namespace headroom::cli
