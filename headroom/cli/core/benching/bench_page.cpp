#include "headroom/cli/core/benching/bench_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/text.h"
#include "headroom/cli/core/benching/bench_table.h"

namespace headroom::cli {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headroom bench</title>
<style>
:root { --text: #1d2329; --soft: #5b6670; --line: #d9dee3; --ground: #fff; --panel: #f6f7f9;
  --used: #2f6fb2; --kept: #b9d2ea; --stays: #1d4f84; --bad: #b3261e; --good: #2d7d46; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --soft: #9aa5af; --line: #3a434c;
  --ground: #14181c; --panel: #1d2329; --used: #6aa6e0; --kept: #2c4a68; --stays: #9cc6ee;
  --bad: #f2867f; --good: #7fca97; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
p { margin: .3rem 0 .8rem; } .soft { color: var(--soft); } .bad { color: var(--bad); }
.good { color: var(--good); } .wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: bottom; }
td { white-space: nowrap; } th { color: var(--soft); font-weight: 500; } .number { text-align: right; }
.replica { display: flex; gap: 3px; margin: 3px 0; }
.stage { background: var(--panel); border: 1px solid var(--line); border-radius: 4px;
  padding: .25rem .5rem; min-width: 5.5rem; font-size: .8rem; box-sizing: border-box; }
.stage b { display: block; } .again { border-style: dashed; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
.cards svg { width: 100%; height: 5rem; background: var(--panel); display: block; }
.reserved { fill: var(--kept); } .requested { fill: var(--used); }
.stays { stroke: var(--stays); stroke-dasharray: 3 3; vector-effect: non-scaling-stroke; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .8rem; }
code { background: var(--panel); padding: .1rem .3rem; white-space: pre-wrap; }
li { margin: .2rem 0; }
</style></head><body>
)";

std::string html(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// ---- The table ----

std::string cell(const std::string& text, bool is_number = false) {
  return fmt::format("<td{}>{}</td>", is_number ? R"( class="number")" : "", html(text));
}

std::string row(const Json& model) {
  const bool has_run = model.at("state") == "finished";
  std::string cells = cell(model.at("model")) + cell(plan_words(model));
  if (has_run)
    cells += cell(std::to_string(model.at("samples").get<std::int64_t>()), true) +
             cell(fmt::format("{} ({} run)", model.at("steps").get<std::int64_t>(),
                              model.at("steps_run").get<std::int64_t>()),
                  true) +
             cell(fmt::format("{:.3g} s", model.at("step_s").get<double>()), true) +
             cell(fmt::format("{:.3g}", model.at("samples_per_s").get<double>()), true) +
             cell(to_string(most_of(model, "resident_bytes")), true) +
             cell(to_string(most_of(model, "peak_reserved_bytes")), true) +
             cell(std::to_string(model.at("ooms").get<int>()), true);
  else
    for (int i = 0; i < 7; ++i) cells += cell("-", true);
  const bool is_good = model.at("state") == "finished";
  return fmt::format(R"(<tr>{}<td class="{}">{}</td></tr>)"
                     "\n",
                     cells, is_good ? "good" : "bad", html(model.at("state").get<std::string>()));
}

std::string table_of(const Json& results) {
  std::string rows;
  for (const Json& model : results.at("models")) rows += row(model);
  return R"(<div class="wide"><table><tr><th>model</th><th>plan</th>)"
         R"(<th class="number">samples</th><th class="number">steps</th><th class="number">a step</th>)"
         R"(<th class="number">samples a second</th><th class="number">stays, at most</th>)"
         R"(<th class="number">reserved, at most</th><th class="number">out of memory</th>)"
         R"(<th>state</th></tr>)"
         "\n" +
         rows + "</table></div>\n";
}

// ---- A plan as a picture ----

bool is_checkpointed(const Json& plan, std::size_t stage) {
  const Json& which = plan.at("checkpointing");
  if (which.is_string()) return which != "none";
  return std::any_of(which.begin(), which.end(),
                     [&](const Json& one) { return one.get<std::size_t>() == stage; });
}

std::string picture(const Json& model) {
  const Json& plan = model.at("plan");
  const Json& split = plan.at("split");
  const std::size_t replicas = plan.at("replicas").get<std::size_t>(),
                    stages = split.size() / replicas;
  std::string out;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    out += R"(<div class="replica">)";
    for (std::size_t stage = 0; stage < stages; ++stage) {
      const Json& part = split.at(replica * stages + stage);
      const auto first = part.at("first").get<int>(), last = part.at("last").get<int>();
      const Json& stays = model.at("predicted").at("resident_bytes").at(part.at("gpu").get<int>());
      const bool again = is_checkpointed(plan, stage);
      out += fmt::format(
          R"(<div class="stage{}" style="flex: {}"><b>GPU {}</b>layers {} to {}{}<br>{} stays</div>)",
          again ? " again" : "", last - first + 1, part.at("gpu").get<int>(), first, last,
          again ? ", checkpointed" : "", to_string(bytes_from(stays)));
    }
    out += "</div>\n";
  }
  return out;
}

// ---- Memory over time ----

// An area under `figure` of each point: 1 for the requested bytes, 2 for the reserved ones.
std::string area(const Json& points, std::size_t figure, const char* name, double width,
                 double height) {
  std::string path = "M0 100";
  for (const Json& point : points)
    path += fmt::format(" L{:.2f} {:.2f}", 100 * point.at(0).get<double>() / width,
                        100 - 100 * point.at(figure).get<double>() / height);
  return fmt::format(R"(<path class="{}" d="{} L100 100 Z"/>)", name, path);
}

std::string curves(const Json& results, const Json& model) {
  std::string out;
  const Json& cards = model.at("over_time");
  for (std::size_t card = 0; card < cards.size(); ++card) {
    const Json& points = cards.at(card);
    if (!points.is_array() || points.empty()) continue;
    const auto total = results.at("cards").at(card).at("total_bytes").get<double>();
    const double steps = points.back().at(0);
    const Bytes stays = bytes_from(model.at("resident_bytes").at(card)),
                peak = bytes_from(model.at("peak_reserved_bytes").at(card));
    const double line = 100 - 100 * static_cast<double>(stays.count) / total;
    out +=
        fmt::format(R"(<div>GPU {}<span class="soft">: {} stays, {} reserved</span>)"
                    R"(<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img">)"
                    R"(<title>GPU {}: {} reserved at most, of {}</title>{}{})"
                    R"(<line class="stays" x1="0" x2="100" y1="{:.2f}" y2="{:.2f}"/></svg></div>)"
                    "\n",
                    card, to_string(stays), to_string(peak), card, to_string(peak),
                    to_string(Bytes{static_cast<std::int64_t>(total)}),
                    area(points, 2, "reserved", steps, total),
                    area(points, 1, "requested", steps, total), line, line);
  }
  if (out.empty()) return "";
  return R"x(<p class="soft">Memory of each card over the steps that were run; the height is the whole card.)x"
         R"x(<span class="key" style="background: var(--used)"></span>tensors)x"
         R"x(<span class="key" style="background: var(--kept)"></span>reserved for them)x"
         R"x(<span class="key" style="border-top: 2px dashed var(--stays); height: 0"></span>)x"
         R"x(what stays between steps, with gradients</p>)x"
         "\n<div class=\"cards\">\n" +
         out + "</div>\n";
}

// ---- A model ----

std::string list_of(const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = "<ul>\n";
  for (const std::string& line : lines) out += "<li>" + html(line) + "</li>\n";
  return out + "</ul>\n";
}

// What ran out of memory, and what was changed then.
std::vector<std::string> cures(const Json& model) {
  std::vector<std::string> lines;
  for (const Json& one : model.at("tries"))
    lines.push_back(fmt::format("{}: out of memory to the end ({}); a lighter plan followed",
                                one.at("way").get<std::string>(),
                                one.at("why").is_null() ? "" : one.at("why").get<std::string>()));
  if (model.contains("events"))
    for (const Json& event : model.at("events")) lines.push_back(event.value("words", ""));
  return lines;
}

std::string section(const Json& results, const Json& model) {
  std::string out = fmt::format("<h2>{} <span class=\"soft\">{}, {} parameters</span></h2>\n",
                                html(model.at("model").get<std::string>()),
                                html(model.at("name").get<std::string>()),
                                rounded(model.at("parameters").get<long long>()));
  out += fmt::format("<p>{}: {}.</p>\n", html(plan_words(model)), html(state_words(model)));
  if (model.contains("plan")) {
    out += picture(model);
    out += "<p>Micro-batch " + std::to_string(model.at("plan").at("micro_batch").get<int>()) +
           " in " + counted(model.at("plan").at("accumulation").get<int>(), "part") + ". <code>" +
           html(model.at("command").get<std::string>()) + "</code></p>\n";
  }
  if (model.contains("over_time")) out += curves(results, model);
  const bool ran_out = model.value("ooms", 0) > 0 || !model.at("tries").empty();
  const std::vector<std::string> lines = ran_out ? cures(model) : std::vector<std::string>();
  out += "<p>" +
         std::string(!ran_out        ? "Memory never ran out."
                     : lines.empty() ? "Memory ran out."
                                     : "Out of memory, and what helped:") +
         "</p>\n" + list_of(lines);
  std::vector<std::string> alone;
  for (const Json& one : model.at("one_card")) alone.push_back(one_card_words(one));
  if (!alone.empty()) out += "<p>One card alone:</p>\n" + list_of(alone);
  return out;
}

}  // namespace

std::string bench_page(const Json& results) {
  std::vector<std::string> cards;
  for (const Json& card : results.at("cards"))
    cards.push_back(to_string(bytes_from(card.at("total_bytes"))));
  const auto different = std::unique(cards.begin(), cards.end());
  const auto count = results.at("cards").size();
  cards.erase(different, cards.end());
  std::string out = kHead;
  out +=
      fmt::format("<h1>headroom bench</h1>\n<p class=\"soft\">{} of {}; {} samples a model{}</p>\n",
                  counted(static_cast<int>(count), "card"), listed(cards),
                  results.at("question").at("samples").get<std::int64_t>(),
                  results.at("complete").get<bool>() ? "" : "; not all models are done yet");
  if (const std::string dry = dry_words(results); !dry.empty()) out += "<p>" + html(dry) + "</p>\n";
  out += table_of(results);
  for (const Json& model : results.at("models")) out += section(results, model);
  return out + "</body></html>\n";
}

}  // namespace headroom::cli
