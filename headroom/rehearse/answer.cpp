#include "headroom/rehearse/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"

namespace headroom::rehearse {
namespace {

// By card.
std::map<int, trace::Peak> largest_processes(const Rehearsal& rehearsal) {
  std::map<int, trace::Peak> largest;
  for (const RehearsedCard& one : rehearsal.cards) {
    const trace::Peak& peak = one.report.peak;
    const auto [found, is_new] = largest.try_emplace(one.index, peak);
    if (!is_new && found->second.process < peak.process) found->second = peak;
  }
  return largest;
}

// The step that began with the last one's end does not count, if the script ended well; nor does
// the first one, without an optimizer.
bool lies_after_the_steps(const Rehearsal& rehearsal, const trace::Report& report) {
  return rehearsal.is_whole() && static_cast<int>(report.peak.step) > rehearsal.steps;
}

}  // namespace

void add_notes(Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards) {
  for (const auto& [index, process] : largest_processes(rehearsal))
    if (rehearsal.needs(index) > process.process)
      rehearsal.notes.push_back(fmt::format("several processes share GPU {}, and need {} together",
                                            index, to_string(rehearsal.needs(index))));
  const RehearsedCard& on = tightest(rehearsal, cards);
  if (rehearsal.steps > 0 && lies_after_the_steps(rehearsal, on.report))
    rehearsal.notes.emplace_back("the peak came after the script's last step");
  std::vector<trace::StepPeak> steps = on.report.per_step;
  std::erase_if(steps, [&](const trace::StepPeak& one) {
    return static_cast<int>(one.step) > rehearsal.steps;
  });
  if (rehearsal.steps < 3 || steps.size() < 2) return;
  const Bytes last = steps.back().allocated, before = steps[steps.size() - 2].allocated;
  if (static_cast<double>(last.count) > 1.01 * static_cast<double>(before.count))
    rehearsal.notes.push_back("the peak grew in the last step, by " + to_string(last - before) +
                              "; --steps 10 shows whether it goes on");
}

answer::Answer answer_of(const Orders& orders, const Rehearsal& rehearsal, bool failed) {
  answer::Answer answer;
  answer.method = answer::Method::rehearsal;
  answer.model = join(orders.command, " ");
  // For `python -c`, the first line.
  if (const auto end = answer.model.find('\n'); end != std::string::npos)
    answer.model = answer.model.substr(0, end) + " ...";
  answer.parameters = rehearsal.parameters;
  answer.trainable_parameters = rehearsal.trainable_parameters;
  answer.report = tightest(rehearsal, orders.cards).report;
  if (lies_after_the_steps(rehearsal, answer.report)) answer.report.peak.step = 0;
  for (const auto& [index, process] : largest_processes(rehearsal)) {
    const gpu::SimulatedCard& card = orders.cards[static_cast<std::size_t>(index)];
    trace::Peak peak = process;
    peak.process = rehearsal.needs(index);
    answer.cards.push_back({.card = card,
                            .peak = peak,
                            .fits = fits(rehearsal, orders.cards),
                            .spare = gpu::usable(card) - peak.process,
                            .until_it_failed = failed});
  }
  return answer;
}

Json to_json(const answer::Answer& answer, const Rehearsal& rehearsal,
             const std::vector<TriedAdvice>& advice) {
  Json json = answer::figures_to_json(answer);
  json["steps"] = rehearsal.steps;
  json["backward_passes"] = rehearsal.steps == 0 ? rehearsal.passes : 0;
  json["not_written"] = rehearsal.not_written;
  json["written"] = rehearsal.written;
  json["stood_in"] = rehearsal.stood_in;
  json["ooms_met"] = rehearsal.ooms_met;
  json["by_share"] = Json::array();
  for (const NeedByShare& one : rehearsal.by_share)
    json["by_share"].push_back(
        {{"assume_true", one.assume_true}, {"peak_process_bytes", one.needs.count}});
  json["cards"] = Json::array();
  for (const RehearsedCard& one : rehearsal.cards)
    json["cards"].push_back(
        {{"rank", one.rank}, {"index", one.index}, {"peak", trace::to_json(one.report.peak)}});
  json["notes"] = rehearsal.notes;
  json.update(to_json(advice));
  json["script_exit_code"] = rehearsal.end.exit_code;
  return json;
}

}  // namespace headroom::rehearse
