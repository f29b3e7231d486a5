#include "headroom/cli/core/commands/trace_replay_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

using allocator::Stat;
using trace::CardReplay;
using trace::SmallestCapacity;

// Fewer operations finish too fast to measure a speed.
constexpr std::uint64_t kEnoughForASpeed = 100'000;

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

Json recorded_ooms_json(const trace::Noticed& noticed) {
  if (!noticed.first_recorded_refusal) return {};
  const trace::RecordedRefusal& first = *noticed.first_recorded_refusal;
  return {{"count", noticed.recorded_refusals},
          {"first_event", first.event},
          {"first_asked_bytes", first.asked.count},
          {"first_free_bytes", first.free.count}};
}

Json smallest_json(const SmallestCapacity& found) {
  Json above = Json::array();
  for (const Bytes capacity : found.refused_above) above.push_back(capacity.count);
  return {{"bytes", or_null(found.capacity)},
          {"step_bytes", found.step.count},
          {"refused_above", above}};
}

// ---- Text ----

std::string card_text(const CardReplay& card) {
  return (card.capacity == allocator::kUnlimited ? std::string("a card without a limit")
                                                 : "a card of " + to_string(card.capacity)) +
         (card.fraction < 1 ? fmt::format(", {:g} of it", card.fraction) : "");
}

// Without --capacity: the card that the trace was recorded on, if known.
std::string recorded_on(const ReplayAnswer& answer) {
  if (!answer.about.capacity || answer.card.capacity != "unlimited") return "";
  return (answer.about.is_within_capacity ? ", recorded on a card of "
                                          : ", recorded without a limit, for a card of ") +
         to_string(*answer.about.capacity);
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
  return table("|>peak|>at the end", rows, terminal);
}

std::string times(std::int64_t count) {
  return count == 1 ? "once" : std::to_string(count) + " times";
}

double share_unused(const CardReplay& card) {
  const Bytes reserved = card.reserved_peak.reserved;
  return reserved > Bytes{0} ? ratio(card.unused_at_peak(), reserved) : 0;
}

// The refusals of the program itself during the recording.
std::string recorded_refusals(const trace::Noticed& noticed, const Terminal& terminal) {
  if (!noticed.first_recorded_refusal) return "";
  const trace::RecordedRefusal& first = *noticed.first_recorded_refusal;
  return wrapped(
      fmt::format("When it was recorded, {} refused, the first in event {}: {}, with {} free on "
                  "the card.",
                  counted(static_cast<long long>(noticed.recorded_refusals), "request") +
                      (noticed.recorded_refusals == 1 ? " was" : " were"),
                  first.event, to_string(first.asked), to_string(first.free)),
      "", "", terminal.width);
}

std::string refusals(const CardReplay& card, const Terminal& terminal) {
  if (card.refused.empty()) return "";
  return fmt::format("{} refused, the first in event {}:\n",
                     terminal.paint(counted(static_cast<long long>(card.refused.size()), "request"),
                                    Colour::red),
                     card.refused.front()) +
         wrapped(to_string(*card.first_refusal), "  ", "  ", terminal.width);
}

std::string one_card(const ReplayAnswer& answer, const Terminal& terminal) {
  const CardReplay& card = answer.cards[0];
  const allocator::Statistics& s = card.statistics;
  std::string out = fmt::format("{}: {}; {}, on {}{}\n\n", answer.file.name(),
                                counted(static_cast<long long>(answer.noticed.events), "event"),
                                trace::settings_text(card), card_text(card), recorded_on(answer));
  out += figures(card, terminal);
  out += fmt::format(
      "\nAt the peak of reserved (event {}) {} of it, {:.1f} %, was not allocated.\n",
      card.reserved_peak.event, to_string(card.unused_at_peak()), 100 * share_unused(card));
  out += fmt::format("Memory was requested from the driver {} and given back {}; {}.\n",
                     times(s.num_device_alloc), times(s.num_device_free),
                     counted(static_cast<long long>(s.num_alloc_retries), "retry"));
  out += recorded_refusals(answer.noticed, terminal);
  out += refusals(card, terminal);
  if (card.met_fault_of_original)
    out +=
        "The trace triggers a bug of PyTorch that the model does not have "
        "(docs/guides/traces.md).\n";
  if (card.operations >= kEnoughForASpeed)
    out += fmt::format("{:.1f} million events/s\n", card.operations_per_second() / 1e6);
  return out;
}

std::string smallest_text(const SmallestCapacity& found) {
  if (!found.capacity) return "none";
  return to_string(*found.capacity) + (found.refused_above.empty() ? "" : " *");
}

std::string comparison(const ReplayAnswer& answer, const Terminal& terminal) {
  // Only one of these as the last column: both are too wide for 80 columns.
  const bool has_smallest = !answer.smallest.empty();
  const std::string columns = std::string("settings|>reserved|>unused|>refused|>retries|>") +
                              (has_smallest ? "enough" : "driver calls");
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < answer.cards.size(); ++i) {
    const CardReplay& card = answer.cards[i];
    const allocator::Statistics& s = card.statistics;
    rows.push_back({trace::settings_text(card), to_string(card.reserved_peak.peak),
                    fmt::format("{:.1f} %", 100 * share_unused(card)),
                    std::to_string(card.refused.size()), std::to_string(s.num_alloc_retries),
                    has_smallest ? smallest_text(answer.smallest[i])
                                 : std::to_string(s.num_device_alloc + s.num_device_free)});
  }
  return fmt::format("{}: {} on {}{}\n\n", answer.file.name(),
                     counted(static_cast<long long>(answer.noticed.events), "event"),
                     card_text(answer.cards[0]), recorded_on(answer)) +
         table(columns, rows, terminal) + "\n" + recorded_refusals(answer.noticed, terminal) +
         wrapped("reserved: its peak; unused: the part of it that was not allocated then", "", "",
                 terminal.width);
}

std::string smallest_lines(const ReplayAnswer& answer, const Terminal& terminal) {
  if (answer.smallest.empty()) return "";
  const SmallestCapacity& found = answer.smallest[0];
  std::string out;
  if (!answer.is_comparison())
    out = found.capacity ? wrapped(fmt::format("The smallest card that refuses no request: {} ({} "
                                               "bytes). A card that is {} smaller refuses one.",
                                               to_string(*found.capacity), found.capacity->count,
                                               to_string(found.step)),
                                   "", "", terminal.width)
                         : "A card of any size refuses a request.\n";
  const bool any = std::any_of(answer.smallest.begin(), answer.smallest.end(),
                               [](const SmallestCapacity& s) { return !s.refused_above.empty(); });
  if (any)
    out += wrapped(
        "Some larger cards refuse a request, because they keep more unused blocks. --json names "
        "them.",
        "* ", "  ", terminal.width);
  return out;
}

// Quotes a text so that a shell reads it as one word.
std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || std::strchr("%+,-./:=@_", c) != nullptr;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The one next command.
std::string advice(const ReplayAnswer& answer, const Terminal& terminal) {
  const std::string bullet = std::string(" ") + terminal.bullet() + " ";
  if (answer.is_comparison())
    return "\n" +
           wrapped(trace::verdict(answer.cards[0], answer.winner()), bullet, "   ", terminal.width);
  if (answer.file.path == "-" || answer.noticed.events == 0) return "";
  const CardReplay& card = answer.cards[0];
  const bool troubled =
      !card.refused.empty() || card.statistics.num_alloc_retries > 0 || share_unused(card) > 0.1;
  std::string command = "headroom trace " + std::string(troubled ? "replay " : "top ");
  command += shell_word(answer.file.path);
  if (troubled && answer.card.capacity != "unlimited")
    command += " --capacity " + shell_word(answer.card.capacity);
  return "\n" + bullet + command + (troubled ? " --compare" : "") + "\n";
}

}  // namespace

Json replay_document(const ReplayAnswer& answer) {
  Json cards = Json::array();
  for (std::size_t i = 0; i < answer.cards.size(); ++i) {
    cards.push_back(card_json(answer.cards[i]));
    if (!answer.smallest.empty())
      cards.back()["smallest_capacity"] = smallest_json(answer.smallest[i]);
  }
  const trace::Noticed& noticed = answer.noticed;
  const std::optional<Bytes> recorded = answer.about.capacity;
  Json json{{"schema", 1},
            {"file", answer.file.path},
            {"format", trace::to_string(answer.about.format)},
            {"recorded_capacity_bytes", or_null(recorded)},
            {"torch", answer.cards[0].version.torch},
            {"events", noticed.events},
            {"device", or_null(noticed.device)},
            {"events_of_other_devices", noticed.of_other_devices},
            {"unknown_frees", noticed.unknown_frees},
            {"missing_frees", noticed.missing_frees},
            {"recorded_ooms", recorded_ooms_json(noticed)}};
  json.update(cards[0]);
  if (answer.is_comparison()) {
    json["what_if"] = cards;
    json["best"] = trace::best(answer.cards);
    json["verdict"] = trace::verdict(answer.cards[0], answer.winner());
  }
  return json;
}

std::string replay_text(const ReplayAnswer& answer, const Terminal& terminal) {
  return (answer.is_comparison() ? comparison(answer, terminal) : one_card(answer, terminal)) +
         smallest_lines(answer, terminal) + advice(answer, terminal);
}

}  // namespace headroom::cli
