#include "headroom/cli/core/view/rehearsal_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/answer/words.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/cli/core/view/tried_view.h"

namespace headroom::cli {
namespace {

using rehearse::NeedByShare;
using rehearse::Rehearsal;
using rehearse::RehearsedCard;
using rehearse::TriedAdvice;

constexpr std::size_t kShownLines = 6;

// "step 1 3.01 GiB, steps 2-3 3.14 GiB, after them 12.0 MiB": later ones alike are one.
// `ended`: the steps of a script that ended well; else 0.
std::string steps_text(std::vector<trace::StepPeak> steps, int ended) {
  std::vector<std::string> parts;
  std::string after;  // of a script that did something after its last step
  if (ended > 0 && !steps.empty() && steps.back().step > static_cast<std::uint32_t>(ended)) {
    after = "after them " + to_string(steps.back().allocated);
    steps.pop_back();
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < steps.size() && steps[last + 1].allocated == steps[i].allocated) ++last;
    const std::string name = last == i
                                 ? fmt::format("step {}", steps[i].step)
                                 : fmt::format("steps {}-{}", steps[i].step, steps[last].step);
    parts.push_back(name + " " + to_string(steps[i].allocated));
    i = last;
  }
  if (!after.empty()) parts.push_back(after);
  return parts.empty() ? "" : "Peaks: " + join(parts, ", ");
}

std::string phases_text(const trace::Report& report) {
  std::vector<std::string> parts;
  for (const trace::PhasePeak& one : report.by_phase)
    parts.push_back(fmt::format("{} {}", to_string(one.phase), to_string(one.allocated)));
  return parts.empty() ? "" : "By phase: " + join(parts, ", ");
}

std::string lines_text(const trace::Report& report) {
  std::string text;
  if (!report.line_at_peak.empty())
    text += fmt::format("\nThe peak is in {}\n", report.line_at_peak);
  if (!report.by_line.empty()) text += "Lines that allocated the memory held then\n";
  for (std::size_t i = 0; i < std::min(kShownLines, report.by_line.size()); ++i)
    text +=
        fmt::format("  {:>11}  {}\n", to_string(report.by_line[i].bytes), report.by_line[i].line);
  return text;
}

std::string assumptions_text(const std::vector<trace::Assumption>& all) {
  const bool has_share = std::any_of(all.begin(), all.end(), [](const trace::Assumption& one) {
    return one.what.find("a share of") != std::string::npos;
  });
  return answer::assumptions_words(all) +
         (has_share ? "; --assume-true 0,1 shows how much such a share changes" : "");
}

// "... the process needs 1.20 GiB with a share of 0, 1.90 GiB with a share of 1"
std::string shares_text(const std::vector<NeedByShare>& all) {
  std::vector<std::string> parts;
  for (const NeedByShare& one : all)
    parts.push_back(fmt::format("{} with a share of {}", to_string(one.needs), one.assume_true));
  return "depending on the share of a mask that is true, the process needs " + join(parts, ", ");
}

std::string passes_text(const Rehearsal& rehearsal) {
  return fmt::format("{} backward pass{}", rehearsal.passes, rehearsal.passes == 1 ? "" : "es");
}

// The note for a script that updates its parameters itself, or does not train.
std::string no_steps_text(const Rehearsal& rehearsal) {
  if (rehearsal.passes == 0)
    return "no optimizer stepped: the figures cover what the script did without one";
  const bool updates =
      std::any_of(rehearsal.cards.begin(), rehearsal.cards.end(), [](const RehearsedCard& card) {
        const auto& phases = card.report.by_phase;
        return std::any_of(phases.begin(), phases.end(), [](const trace::PhasePeak& one) {
          return one.phase == trace::Phase::optimizer;
        });
      });
  return fmt::format("{} {}; no optimizer of torch.optim stepped{}",
                     rehearsal.was_stopped_after_passes ? "stopped after" : "there were",
                     passes_text(rehearsal),
                     updates ? ", and the phase optimizer is the script's own update" : "");
}

std::string what_was_rehearsed(const Rehearsal& rehearsal) {
  if (rehearsal.steps > 0 || !rehearsal.is_whole()) return counted(rehearsal.steps, "step");
  return rehearsal.passes > 0 ? passes_text(rehearsal) : "the script";
}

std::string remarks(const Rehearsal& rehearsal, const Terminal& terminal) {
  std::vector<std::string> notes = rehearsal.notes;
  if (rehearsal.steps == 0 && rehearsal.is_whole()) notes.push_back(no_steps_text(rehearsal));
  if (rehearsal.ooms_met > 0 && !rehearsal.ran_out_of_memory)
    notes.push_back(fmt::format("the script met {} and went on",
                                counted(rehearsal.ooms_met, "out-of-memory error")));
  if (!rehearsal.stood_in.empty())
    notes.push_back("stand-ins for missing weights: " + answer::listed(rehearsal.stood_in));
  if (!rehearsal.assumptions.empty()) notes.push_back(assumptions_text(rehearsal.assumptions));
  if (!rehearsal.by_share.empty()) notes.push_back(shares_text(rehearsal.by_share));
  return files_text(rehearsal, terminal) + notes_text(notes, terminal);
}

// Without an optimizer, an unfinished step does not count, unless the script failed in it.
std::string peaks_text(const Rehearsal& rehearsal, const trace::Report& report) {
  if (!rehearsal.is_whole()) return steps_text(report.per_step, 0);
  return rehearsal.steps > 0 ? steps_text(report.per_step, rehearsal.steps) : "";
}

// What `headroom run --spill` would move on smaller cards.
std::string floor_text(const rehearse::Floor& floor, const Terminal& terminal) {
  std::string text = "\nWith what is needed later on the host (headroom run --spill)\n";
  const auto row = [&](const rehearse::OnLess& one, const char* note) {
    text += one.ends
                ? fmt::format("  {:>11}  {:>11} wait there, {:>11} move in a step, at most {}{}\n",
                              to_string(one.process), to_string(one.waiting), to_string(one.moved),
                              step_time_text(one.seconds), note)
                : fmt::format("  {:>11}  out of memory{}\n", to_string(one.process), note);
  };
  if (floor.here) row(*floor.here, "  (this card)");
  const auto least = floor.least();
  for (const rehearse::OnLess& one : floor.tried)
    if (one.ends && one.process != least->process) row(one, "");
  if (!least) return text + "  it needs all of " + to_string(floor.needs) + "\n";
  row(*least, "  (the least)");
  return text +
         in_lines("Times: over the link of the card, if nothing runs beside it.", "", "", terminal);
}

}  // namespace

std::string files_text(const Rehearsal& rehearsal, const Terminal& terminal) {
  std::vector<std::string> notes;
  if (!rehearsal.not_written.empty())
    notes.push_back("not changed or not written: " + answer::listed(rehearsal.not_written));
  if (!rehearsal.written.empty())
    notes.push_back("the script wrote " + answer::listed(rehearsal.written));
  return notes_text(notes, terminal);
}

std::string rehearsal_text(const answer::Answer& answer, const Rehearsal& rehearsal,
                           const std::optional<std::vector<TriedAdvice>>& advice,
                           const std::optional<rehearse::Floor>& floor, const Terminal& terminal) {
  const trace::Report& report = answer.report;
  std::string text = fmt::format("{}\n{}\n{}", terminal.paint(answer.model, Colour::bold),
                                 answer::parameters_words(answer), remarks(rehearsal, terminal));
  text += "\n" + card_text(answer, terminal);
  for (const std::string& line : {peaks_text(rehearsal, report), phases_text(report)})
    if (!line.empty()) text += in_lines(line, "", "  ", terminal);
  text += devices_text(answer.cards, terminal);
  text += lines_text(report) + modules_text(report.by_module);
  if (floor) text += floor_text(*floor, terminal);
  if (advice) text += tried_text(*advice, terminal);
  return text + terminal.paint(fmt::format("\nRehearsed {} in {:.2f} s\n",
                                           what_was_rehearsed(rehearsal), report.took_s),
                               Colour::dim);
}

}  // namespace headroom::cli
