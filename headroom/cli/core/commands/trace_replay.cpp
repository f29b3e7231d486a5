// `headroom trace replay`: what a trace would have used on another card or with other settings.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/trace/what_if.h"

namespace headroom::cli {
namespace {

using allocator::Stat;
using trace::CardReplay;
using trace::SmallestCapacity;

// Fewer are played in less time than a clock is good for.
constexpr std::uint64_t kEnoughForASpeed = 100'000;

struct Options {
  TraceFile file;
  CardChoice card;
  std::vector<std::string> allocator;
  bool compare = false, smallest = false;
  bool json = false;
};

// Everything that was found out, for both ways of saying it.
struct Answer {
  std::vector<CardReplay> cards;  // the first is what the others are compared with
  std::vector<SmallestCapacity> smallest;
  trace::Noticed noticed;
  trace::Format format;

  [[nodiscard]] bool is_comparison() const { return cards.size() > 1; }
  [[nodiscard]] const CardReplay& winner() const { return cards[trace::best(cards)]; }
};

std::vector<trace::CardSetup> setups_from(const Options& options, const trace::About& about) {
  std::vector<trace::CardSetup> setups{options.card.setup()};
  if (!options.allocator.empty()) setups[0].settings = options.allocator[0];
  if (options.compare) setups = trace::usual_setups(setups[0], about);
  for (std::size_t i = 1; i < options.allocator.size(); ++i) {
    setups.push_back(options.card.setup());
    setups.back().settings = options.allocator[i];
  }
  return setups;
}

Answer find_out(const Options& options) {
  const auto reader = trace::open_trace(options.file.path);
  const auto setups = setups_from(options, reader->about());
  TraceProgress progress(options.file.name());
  trace::ReplayOptions replay;
  replay.operations.name = options.file.name();
  replay.operations.device = options.file.device_number();
  replay.progress = [&](const trace::Reader& at) { progress.show(at); };
  Answer answer{{}, {}, {}, reader->about().format};
  if (options.smallest) {
    trace::Operations operations(*reader, replay.operations);
    const trace::LoadedTrace loaded(*reader, operations, replay);
    for (const trace::CardSetup& setup : setups) {
      answer.cards.push_back(loaded.play(setup));
      answer.smallest.push_back(
          loaded.smallest_capacity(setup, [&](int tried) { progress.show_search(tried); }));
    }
    progress.clear();
    answer.noticed = operations.noticed();
  } else {
    trace::WhatIf result = trace::what_if(*reader, setups, replay);
    progress.clear();
    answer.cards = std::move(result.cards);
    answer.noticed = std::move(result.noticed);
  }
  warn_of(options.file, *reader, answer.noticed);
  return answer;
}

// ---- JSON ----

Json amount(const Stat& stat) {
  return {{"current", stat.current}, {"peak", stat.peak}};
}

Json moment_json(const trace::Moment& moment) {
  return {{"event", moment.event},
          {"allocated_bytes", moment.allocated.count},
          {"reserved_bytes", moment.reserved.count}};
}

Json card_json(const CardReplay& card) {
  const allocator::Statistics& s = card.statistics;
  const bool unlimited = card.capacity == allocator::kUnlimited;
  return {{"settings", card.settings},
          {"capacity_bytes", unlimited ? Json() : Json(card.capacity.count)},
          {"fraction", card.fraction},
          {"allocated", amount(s.allocated_bytes.all)},
          {"active", amount(s.active_bytes.all)},
          {"reserved", amount(s.reserved_bytes.all)},
          {"requested", amount(s.requested_bytes.all)},
          {"inactive_split", amount(s.inactive_split_bytes.all)},
          {"segments", amount(s.segment.all)},
          {"num_alloc_retries", s.num_alloc_retries},
          {"num_ooms", s.num_ooms},
          {"num_device_alloc", s.num_device_alloc},
          {"num_device_free", s.num_device_free},
          {"num_sync_all_streams", s.num_sync_all_streams},
          {"oom_events", card.refused},
          {"first_oom", card.first_refusal ? Json(to_string(*card.first_refusal)) : Json()},
          {"reserved_peak", moment_json(card.reserved_peak)},
          {"allocated_peak", moment_json(card.allocated_peak)},
          {"unused_at_peak_bytes", card.unused_at_peak().count},
          {"met_fault_of_original", card.met_fault_of_original},
          {"events_per_s", card.operations_per_second()}};
}

Json smallest_json(const SmallestCapacity& found) {
  Json above = Json::array();
  for (const Bytes capacity : found.refused_above) above.push_back(capacity.count);
  return {{"bytes", found.capacity ? Json(found.capacity->count) : Json()},
          {"step_bytes", found.step.count},
          {"refused_above", above}};
}

Json document(const Options& options, const Answer& answer) {
  Json cards = Json::array();
  for (std::size_t i = 0; i < answer.cards.size(); ++i) {
    cards.push_back(card_json(answer.cards[i]));
    if (!answer.smallest.empty())
      cards.back()["smallest_capacity"] = smallest_json(answer.smallest[i]);
  }
  const trace::Noticed& noticed = answer.noticed;
  Json json{{"schema", 1},
            {"file", options.file.path},
            {"format", trace::to_string(answer.format)},
            {"events", noticed.events},
            {"device", noticed.device ? Json(*noticed.device) : Json()},
            {"events_of_other_devices", noticed.of_other_devices},
            {"unknown_frees", noticed.unknown_frees},
            {"missing_frees", noticed.missing_frees}};
  json.update(cards[0]);
  if (answer.is_comparison()) {
    json["what_if"] = cards;
    json["best"] = trace::best(answer.cards);
    json["verdict"] = trace::verdict(answer.cards[0], answer.winner());
  }
  return json;
}

// ---- For people ----

std::string card_text(const CardReplay& card) {
  return (card.capacity == allocator::kUnlimited ? std::string("a card without limit")
                                                 : "a card of " + to_string(card.capacity)) +
         (card.fraction < 1 ? fmt::format(", {:g} of it", card.fraction) : "");
}

std::string figures(const CardReplay& card, const Terminal& terminal) {
  const allocator::Statistics& s = card.statistics;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* name, const Stat& stat) {
    rows.push_back({name, to_string(Bytes{stat.peak}), to_string(Bytes{stat.current})});
  };
  add("reserved", s.reserved_bytes.all);
  add("active", s.active_bytes.all);
  add("allocated", s.allocated_bytes.all);
  add("requested", s.requested_bytes.all);
  add("inactive split", s.inactive_split_bytes.all);
  rows.push_back(
      {"segments", std::to_string(s.segment.all.peak), std::to_string(s.segment.all.current)});
  return table({{""}, {"peak", true}, {"at the end", true}}, rows, terminal);
}

double share_unused(const CardReplay& card) {
  const Bytes reserved = card.reserved_peak.reserved;
  return reserved > Bytes{0} ? ratio(card.unused_at_peak(), reserved) : 0;
}

std::string refusals(const CardReplay& card, const Terminal& terminal) {
  if (card.refused.empty()) return "";
  return fmt::format("{} refused, the first in event {}:\n",
                     terminal.paint(counted(static_cast<long long>(card.refused.size()), "request"),
                                    Colour::red),
                     card.refused.front()) +
         wrapped(to_string(*card.first_refusal), "  ", "  ", terminal.width);
}

std::string one_card(const Answer& answer, const Options& options, const Terminal& terminal) {
  const CardReplay& card = answer.cards[0];
  const allocator::Statistics& s = card.statistics;
  std::string out = fmt::format("{}: {}; {}, on {}\n\n", options.file.name(),
                                counted(static_cast<long long>(answer.noticed.events), "event"),
                                trace::settings_text(card), card_text(card));
  out += figures(card, terminal);
  out += fmt::format(
      "\nAt the peak of reserved (event {}) {} of it, {:.1f} %, was not allocated.\n",
      card.reserved_peak.event, to_string(card.unused_at_peak()), 100 * share_unused(card));
  out += fmt::format(
      "The driver was asked for memory {} times and given it back {} times; {}.\n",
      s.num_device_alloc, s.num_device_free,
      s.num_alloc_retries == 1 ? "1 retry" : std::to_string(s.num_alloc_retries) + " retries");
  out += refusals(card, terminal);
  if (card.met_fault_of_original)
    out +=
        "The trace meets a fault of PyTorch 2.11 that is not imitated here "
        "(docs/guides/traces.md).\n";
  if (card.operations >= kEnoughForASpeed)
    out += fmt::format("{:.1f} million events/s\n", card.operations_per_second() / 1e6);
  return out;
}

std::string smallest_text(const SmallestCapacity& found) {
  if (!found.capacity) return "none";
  return to_string(*found.capacity) + (found.refused_above.empty() ? "" : " *");
}

std::string comparison(const Answer& answer, const Options& options, const Terminal& terminal) {
  std::vector<Column> columns{{"settings"},      {"reserved", true}, {"unused", true},
                              {"refused", true}, {"retries", true},  {"driver calls", true}};
  if (!answer.smallest.empty()) columns.push_back({"enough", true});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < answer.cards.size(); ++i) {
    const CardReplay& card = answer.cards[i];
    const allocator::Statistics& s = card.statistics;
    rows.push_back({trace::settings_text(card), to_string(card.reserved_peak.peak),
                    fmt::format("{:.1f} %", 100 * share_unused(card)),
                    std::to_string(card.refused.size()), std::to_string(s.num_alloc_retries),
                    std::to_string(s.num_device_alloc + s.num_device_free)});
    if (!answer.smallest.empty()) rows.back().push_back(smallest_text(answer.smallest[i]));
  }
  return fmt::format("{}: {} on {}\n\n", options.file.name(),
                     counted(static_cast<long long>(answer.noticed.events), "event"),
                     card_text(answer.cards[0])) +
         table(columns, rows, terminal) +
         "\nreserved: its peak; unused: the part of it that was not allocated then\n";
}

std::string smallest_lines(const Answer& answer) {
  if (answer.smallest.empty()) return "";
  const SmallestCapacity& found = answer.smallest[0];
  std::string out;
  if (!answer.is_comparison())
    out = found.capacity
              ? fmt::format(
                    "The smallest card that refuses nothing: {} ({} bytes); with "
                    "{} less something is refused.\n",
                    to_string(*found.capacity), found.capacity->count, to_string(found.step))
              : "Something is refused on a card of any size.\n";
  const bool any = std::any_of(answer.smallest.begin(), answer.smallest.end(),
                               [](const SmallestCapacity& s) { return !s.refused_above.empty(); });
  if (any)
    out += "* Some larger cards refuse again: they keep more unused blocks. --json names them.\n";
  return out;
}

// The one next command.
std::string advice(const Answer& answer, const Options& options, const Terminal& terminal) {
  const std::string bullet = std::string(" ") + terminal.bullet() + " ";
  if (answer.is_comparison())
    return "\n" +
           wrapped(trace::verdict(answer.cards[0], answer.winner()), bullet, "   ", terminal.width);
  if (options.file.path == "-") return "";
  const CardReplay& card = answer.cards[0];
  const bool troubled =
      !card.refused.empty() || card.statistics.num_alloc_retries > 0 || share_unused(card) > 0.1;
  std::string command = "headroom trace " + std::string(troubled ? "replay " : "top ");
  command += options.file.path;
  if (troubled && options.card.capacity != "unlimited")
    command += " --capacity " + (options.card.capacity.find(' ') == std::string::npos
                                     ? options.card.capacity
                                     : "\"" + options.card.capacity + "\"");
  return "\n" + bullet + command + (troubled ? " --compare" : "") + "\n";
}

ExitCode run(const Options& options) {
  const Answer answer = find_out(options);
  if (options.json) {
    print(to_line(document(options, answer)) + "\n");
    return kOk;
  }
  const Terminal terminal = standard_output();
  print((answer.is_comparison() ? comparison(answer, options, terminal)
                                : one_card(answer, options, terminal)) +
        smallest_lines(answer) + advice(answer, options, terminal));
  return kOk;
}

}  // namespace

void add_trace_replay(Registry& registry, CLI::App* group) {
  auto options = std::make_shared<Options>();
  CLI::App* command = registry.add(
      "replay", "What a trace would have used, with any settings, on any card",
      "  headroom trace replay run.hrtrace\n"
      "  headroom trace replay snapshot.pickle --capacity 24GiB --compare\n"
      "  headroom trace replay run.hrtrace --allocator \"\" --allocator expandable_segments:True\n"
      "  headroom trace replay run.hrtrace --capacity \"RTX 4090\" --smallest-capacity\n"
      "  printf 'a 1 3000000\\nf 1\\n' | headroom trace replay - --json\n\n"
      "The model is PyTorch 2.11's caching allocator. A refused request counts as not made and\n"
      "the trace goes on. The CUDA context is not part of it: take it off --capacity.",
      group);
  options->file.add_to(command);
  command
      ->add_option("--allocator", options->allocator,
                   "As PYTORCH_CUDA_ALLOC_CONF (default: as recorded); several are compared")
      ->allow_extra_args(false);
  options->card.add_to(command);
  command->add_flag("--compare", options->compare,
                    "Try the usual settings too, and say which is best");
  command->add_flag("--smallest-capacity", options->smallest,
                    "Also search the smallest card that refuses nothing");
  command->add_flag("--json", options->json, "One JSON document (sizes in bytes)");
  registry.run(command, options, &run);
}

}  // namespace headroom::cli
