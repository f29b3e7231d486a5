#include "headroom/cli/core/benching/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/cli/core/view/plan_view.h"

namespace headroom::cli {
namespace {

// "1st", "27th"
std::string nth(int number) {
  const int last = number % 10;
  const bool is_teen = number % 100 / 10 == 1;
  const char* const ending = is_teen     ? "th"
                             : last == 1 ? "st"
                             : last == 2 ? "nd"
                             : last == 3 ? "rd"
                                         : "th";
  return std::to_string(number) + ending;
}

std::vector<std::string> row_of(const Json& model) {
  const bool has_run = model.at("state") == "finished";
  const auto or_dash = [&](const std::string& text) { return has_run ? text : "-"; };
  return {model.at("model"),
          rounded(model.at("parameters").get<long long>()),
          plan_words(model),
          or_dash(has_run ? std::to_string(model.at("samples").get<std::int64_t>()) : ""),
          or_dash(has_run ? std::to_string(model.at("steps").get<std::int64_t>()) : ""),
          or_dash(has_run ? step_time_text(model.at("step_s")) : ""),
          or_dash(has_run ? duration_text(Seconds(model.at("total_s").get<double>())) : ""),
          or_dash(to_string(most_of(model, "resident_bytes"))),
          or_dash(to_string(most_of(model, "peak_reserved_bytes"))),
          or_dash(has_run ? std::to_string(model.at("ooms").get<int>()) : ""),
          model.at("state")};
}

}  // namespace

std::string plan_words(const Json& model) {
  if (!model.contains("plan")) return "none";
  const Json& plan = model.at("plan");
  const auto replicas = plan.at("replicas").get<int>();
  const auto stages = static_cast<int>(plan.at("split").size()) / replicas;
  std::string words = replicas * stages == 1 ? "one card" : "";
  if (replicas > 1) words = counted(replicas, "replica");
  if (stages > 1) words += (words.empty() ? "" : " in ") + counted(stages, "stage");
  const std::string way = model.at("way");
  return way == "all weights" || way == "as asked" ? words : words + ", " + way;
}

std::string state_words(const Json& model) {
  std::string words = model.at("state");
  if (model.at("lighter").get<bool>()) words += " with a lighter plan";
  if (!model.at("why").is_null()) words += ": " + model.at("why").get<std::string>();
  return words;
}

std::string one_card_words(const Json& one) {
  const std::string dtype = one.at("dtype");
  if (one.at("fits").get<bool>()) return "in " + dtype + " one card alone holds it";
  std::string words = fmt::format(
      "in {} one card of {} refuses {} {}", dtype, to_string(bytes_from(one.at("total_bytes"))),
      to_string(bytes_from(one.at("asked_bytes"))), one.at("when").get<std::string>());
  if (one.contains("layer")) words += fmt::format(", in its {} layer", nth(one.at("layer")));
  return words + fmt::format(", with {} free", to_string(bytes_from(one.at("free_bytes"))));
}

std::string dry_words(const Json& results) {
  bool any = false;
  for (const Json& model : results.at("models")) any = any || model.value("dry", false);
  if (!any) return "";
  return "Steps are dry: the cards are simulated, so tensors have shapes and no values. Memory is "
         "exact; times are estimates by the cost model. A step is run until two make the same "
         "requests on all cards; the others are counted.";
}

Bytes most_of(const Json& model, const char* figure) {
  Bytes most;
  if (model.contains(figure))
    for (const Json& card : model.at(figure)) most = std::max(most, bytes_from(card));
  return most;
}

std::string bench_table(const Json& results, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& model : results.at("models")) rows.push_back(row_of(model));
  std::string text =
      table("model|>parameters|plan|>samples|>steps|>a step|>in all|>stays|>reserved|>OOMs|state",
            rows, terminal);
  for (const Json& model : results.at("models")) {
    const std::string name = model.at("model");
    if (model.at("state") != "finished" || model.at("lighter").get<bool>())
      text += in_lines(name + ": " + state_words(model), "\n", "  ", terminal);
    std::vector<std::string> alone;
    for (const Json& one : model.at("one_card")) alone.push_back(one_card_words(one));
    if (!alone.empty())
      text += in_lines(fmt::format("{} on one card: {}", name, join(alone, "; ")), "\n", "  ",
                       terminal);
  }
  if (const std::string dry = dry_words(results); !dry.empty())
    text += in_lines(dry, "\n", "", terminal);
  return text;
}

}  // namespace headroom::cli
