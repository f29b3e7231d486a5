// `headroom trace diff`: two traces compared at their peaks.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/page/diff.h"
#include "headroom/page/page.h"

namespace headroom::cli {
namespace {

using page::Difference;
using page::Timeline;

struct TraceDiffOptions {
  std::string a, b, out;
  std::optional<std::uint32_t> step;
  int device = -1, rows = 15;
  bool json = false, all_modules = false;
};

std::string with_sign(Bytes difference) {
  return difference < Bytes{0} ? "-" + to_string(Bytes{} - difference)
                               : "+" + to_string(difference);
}

Timeline timeline_from(const std::string& path, int device, const Interrupt& interrupt) {
  const TraceFile file{.path = path, .device = device};
  trace::ReplayOptions replay;
  replay.operations.name = file.name();
  replay.operations.device = file.device_number();
  replay.cancel = interrupt.token();
  TraceProgress progress(file.name());
  replay.progress = [&](const trace::Reader& at) { progress.show(at); };
  const auto reader = trace::open_trace(path);
  Timeline timeline = page::timeline_of(*reader, replay);
  progress.clear();
  if (timeline.events == 0 && !interrupt.happened())
    throw InputError(fmt::format("expected a trace with events in {}, received none", file.name()));
  warn_of(file, *reader, timeline.noticed);
  return timeline;
}

std::string peak_line(const char* letter, const page::ComparedPeak& peak) {
  const std::string where = page::moment_of(peak);
  return fmt::format("{}  {}: peak {}{}\n", letter, without_controls(peak.name),
                     to_string(peak.allocated), where.empty() ? "" : " in " + where);
}

std::string parts_table(const TraceDiffOptions& options, const Difference& difference,
                        const Terminal& terminal) {
  std::vector<page::FoldedPart> parts;
  if (options.all_modules)
    for (const page::DifferentPart& part : difference.parts) parts.push_back({part});
  else
    parts = folded(difference.parts);
  std::vector<std::vector<std::string>> rows;
  Bytes rest = difference.peak();
  for (const page::FoldedPart& folded : parts) {
    if (rows.size() == static_cast<std::size_t>(options.rows)) break;
    const auto& part = folded.part;
    rest -= part.b - part.a;
    rows.push_back({with_sign(part.b - part.a), to_string(part.a), to_string(part.b), part.category,
                    std::string(to_string(part.phase)),
                    part.module.empty() ? "(no module)" : without_controls(shown_module(folded))});
  }
  if (parts.size() > rows.size())
    rows.push_back({with_sign(rest), "", "",
                    fmt::format("{} more (--rows)", parts.size() - rows.size()), "", ""});
  rows.push_back({with_sign(difference.peak()), to_string(difference.a.allocated),
                  to_string(difference.b.allocated), "in all", "", ""});
  return table(">difference|>A|>B|category|made in|module", rows, terminal);
}

std::string steps_table(const Difference& difference, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? to_string(*bytes) : "-";
  };
  for (const page::ComparedStep& step : difference.steps)
    rows.push_back({step.step == 0 ? "before 1" : std::to_string(step.step), size(step.a),
                    size(step.b), step.a && step.b ? with_sign(*step.b - *step.a) : ""});
  return table(">step|>peak of A|>peak of B|>difference", rows, terminal);
}

std::string text(const TraceDiffOptions& options, const Difference& difference,
                 const Terminal& terminal) {
  std::string out = peak_line("A", difference.a) + peak_line("B", difference.b);
  if (difference.parts.empty()) return out + "\nThe peaks hold the same memory.\n";
  out += "\n" + parts_table(options, difference, terminal);
  if (!difference.reasons.empty()) out += "\nWhy\n";
  for (const std::string& reason : difference.reasons)
    out += "  " + without_controls(reason) + "\n";
  if (difference.steps.size() > 1 && difference.steps.size() <= 20)
    out += "\n" + steps_table(difference, terminal);
  return out;
}

ExitCode run_trace_diff(const TraceDiffOptions& options) {
  if (options.a == "-" && options.b == "-")
    throw UsageError(expectation("diff", "standard input for one trace at most", "- -"));
  check_outputs("diff", {options.out}, {options.a, options.b});
  const Interrupt interrupt;
  const Timeline a = timeline_from(options.a, options.device, interrupt);
  const Timeline b = timeline_from(options.b, options.device, interrupt);
  if (interrupt.happened()) return interrupt.exit_code();
  const Difference difference =
      difference_of(a, b, {.name_a = options.a, .name_b = options.b, .step = options.step});
  if (!options.out.empty())
    page::write_page(options.out, a, b, difference, {.title = options.a + " and " + options.b});
  if (options.json) {
    print(to_line(to_json(difference)) + "\n");
    return kOk;
  }
  print(text(options, difference, standard_output()));
  if (!options.out.empty())
    print(fmt::format("\n {} open {} in a browser\n", standard_output().bullet(), options.out));
  return kOk;
}

}  // namespace

void add_trace_diff(Registry& registry, CLI::App* group) {
  auto [command, options] = registry.add(
      &run_trace_diff, "diff", "Compare two traces: which memory grew, where and why",
      "  headroom trace diff before.hrtrace after.hrtrace\n"
      "  headroom trace diff a.pickle b.pickle --out diff.html\n"
      "  headroom trace diff a.hrtrace b.hrtrace --step 2 --all-modules --rows 50\n"
      "  headroom trace diff a.hrtrace b.hrtrace --json | jq .peak_difference_bytes\n\n"
      "Compares the tensors at the two peaks. The differences add up to that of the peaks.",
      group);
  command->add_option("A", options->a, "A trace, as for `headroom trace replay`")->required();
  command->add_option("B", options->b, "The trace to compare with it")->required();
  command
      ->add_option("--device", options->device,
                   "Device to read in both (default: the first that appears)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--step", options->step,
                      "Compare the peaks of this step (default: the highest of all)");
  command->add_option("--out", options->out, "Also write a page for a browser to this file");
  command->add_option("--rows", options->rows, "Rows of the table")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_flag("--all-modules", options->all_modules,
                    "A row for each layer, instead of one for modules that differ in a number");
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
}

}  // namespace headroom::cli
