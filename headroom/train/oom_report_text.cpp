// An OomReport as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/train/detail/oom_advice.h"
#include "headroom/train/oom_report.h"

namespace headroom::train {
namespace {

constexpr int kLineWidth = 100;

// "     1.00 GiB  parameters"
std::string sized_line(Bytes bytes, std::string_view text) {
  return wrapped(text, fmt::format("{:>13}  ", to_string(bytes)), std::string(17, ' '), kLineWidth);
}
std::string sized_line(const std::optional<Bytes>& bytes, std::string_view text) {
  return bytes ? sized_line(*bytes, text) : "";
}

std::string headline(const OomReport& report) {
  const Failure& failure = report.failure;
  std::string words = "Out of memory on " + report.device.str();
  const auto add = [&](const std::optional<Bytes>& bytes, const std::string& what) {
    if (bytes) words += fmt::format(", {} {}", to_string(*bytes), what);
  };
  add(failure.asked, "asked");
  add(failure.free, report.total ? fmt::format("of {} free", to_string(*report.total)) : "free");
  return wrapped(words + ":", "", "  ", kLineWidth);
}

std::string card_lines(const OomReport& report) {
  std::string text = sized_line(report.ours, "held by this process");
  if (report.ours) text += sized_line(report.failure.cached, "of this cached");
  text += sized_line(report.limit, "is the most that this process may hold: a limit was set");
  text += sized_line(report.neighbours, "held by other processes and the driver");
  for (const gpu::HolderReport& holder : report.holders)
    text += sized_line(holder.used.value_or(Bytes{}), "of this by " + detail::name_of(holder));
  return text;
}

std::string live_lines(const OomReport& report) {
  std::string sums, largest;
  for (int kind = 0; kind < OomReport::kKinds; ++kind)
    if (const Bytes sum = report.sums[static_cast<std::size_t>(kind)]; sum > Bytes{})
      sums += sized_line(sum, to_string(static_cast<OomReport::Kind>(kind)));
  sums += sized_line(report.released, "released since, by the attempt that failed");
  for (const OomReport::Live& one : report.largest)
    largest += sized_line(
        one.bytes,
        (one.name.empty() ? "not recorded" : one.name) +
            (one.kind == OomReport::Kind::other ? ", " + counted(one.count, "block") : ""));
  return (sums.empty() ? "" : "Alive now:\n" + sums) +
         (largest.empty() ? "" : "The largest of these:\n" + largest);
}

std::string plan_lines(const OomReport& report) {
  std::string text = sized_line(report.needed, to_string(report.failure.plan) + ", which failed");
  for (const auto& [plan, needed] : report.would_fit)
    text += sized_line(needed, to_string(plan) + ", which would fit");
  const bool is_less =  // for one row, the least is the plan that failed
      report.least && (!report.needed || report.least->needed < *report.needed);
  if (is_less && report.would_fit.empty())
    text += sized_line(report.least->needed, to_string(report.least->plan) + ", the least");
  const std::string& otherwise = report.failure.otherwise;
  const std::string other =
      otherwise.empty()
          ? ""
          : wrapped("A plan failed for another reason: " + otherwise, "", "  ", kLineWidth);
  if (text.empty()) return other;
  const std::string card =
      report.offered ? fmt::format(", of {} that this card has for it", to_string(*report.offered))
                     : "";
  return fmt::format("What plans need{}:\n{}{}", card, text, other);
}

Json price_json(const PricedPlan& price) {
  return {{"plan", to_json(price.plan)}, {"needed_bytes", price.needed.count}};
}

}  // namespace

const char* to_string(OomReport::Kind kind) {
  static constexpr std::array<const char*, OomReport::kKinds> kNames{
      "parameters", "gradients", "optimizer states", "buffers", "other"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string to_string(const OomReport& report) {
  std::string text =
      headline(report) + card_lines(report) + live_lines(report) + plan_lines(report);
  if (!report.advice.empty()) text += "What to do, the largest effect first:\n";
  for (const auto& one : report.advice) text += wrapped(one.text, "  - ", "    ", kLineWidth);
  return text;
}

Json to_json(const OomReport& report) {
  const Failure& failure = report.failure;
  Json json{{"device", report.device.str()},
            {"asked_bytes", or_null(failure.asked)},
            {"free_bytes", or_null(failure.free)},
            {"cached_bytes", or_null(failure.cached)},
            {"total_bytes", or_null(report.total)},
            {"ours_bytes", or_null(report.ours)},
            {"neighbour_bytes", or_null(report.neighbours)},
            {"limit_bytes", or_null(report.limit)},
            {"holders", Json::array()},
            {"alive", Json::object()},
            {"released_bytes", or_null(report.released)},
            {"largest", Json::array()},
            {"plan", to_json(failure.plan)},
            {"offered_bytes", or_null(report.offered)},
            {"needed_bytes", or_null(report.needed)},
            {"would_fit", Json::array()},
            {"least", report.least ? price_json(*report.least) : Json()},
            {"advice", Json::array()}};
  for (const gpu::HolderReport& one : report.holders)
    json["holders"].push_back({{"pid", one.process ? Json(one.process->pid) : Json()},
                               {"user", or_null(one.user)},
                               {"command", or_null(one.command)},
                               {"class", gpu::to_string(one.holder_class)},
                               {"used_bytes", or_null(one.used)}});
  constexpr std::array<const char*, OomReport::kKinds> kKeys{
      "parameter_bytes", "gradient_bytes", "optimizer_state_bytes", "buffer_bytes", "other_bytes"};
  for (std::size_t kind = 0; kind < kKeys.size(); ++kind)
    json["alive"][kKeys[kind]] = report.sums[kind].count;
  for (const OomReport::Live& one : report.largest)
    json["largest"].push_back({{"kind", to_string(one.kind)},
                               {"name", one.name},
                               {"bytes", one.bytes.count},
                               {"blocks", one.count}});
  for (const auto& one : report.would_fit) json["would_fit"].push_back(price_json(one));
  for (const auto& one : report.advice)
    json["advice"].push_back({{"text", one.text}, {"bytes", one.bytes.count}});
  return json;
}

}  // namespace headroom::train
