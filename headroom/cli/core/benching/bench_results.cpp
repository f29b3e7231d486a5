#include "headroom/cli/core/benching/bench_results.h"

#include <vector>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/benching/bench_page.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/version.h"

namespace headroom::cli {
namespace {

constexpr const char* kResults = "results.json";
constexpr const char* kPage = "report.html";

// All that the results depend on, but for what lies on the cards now.
Json to_json(const BenchQuestion& question) {
  Json plans = Json::array();
  for (const std::string& model : question.models) {
    Json plan = to_json(question.of(model));
    plan.erase("cards");
    plan.erase("without_rule");
    plans.push_back(std::move(plan));
  }
  return {{"headroom", kVersion},
          {"models", question.models},
          {"samples", question.samples},
          {"computes", question.computes},
          {"clean_every", question.clean_every},
          {"inject", question.inject},
          {"plans", std::move(plans)}};
}

Json cards_json(const BenchQuestion& question) {
  Json cards = Json::array();
  for (const gpu::SimulatedCard& card : question.of(question.models.front()).cards)
    cards.push_back({{"name", card.name}, {"total_bytes", card.total.count}});
  return cards;
}

}  // namespace

BenchResults::BenchResults(const BenchQuestion& question, bool fresh)
    : out_(question.out), folder_(question.out) {
  const Json asked = to_json(question);
  if (const auto text = read_file(out_ / kResults); text && !fresh) try {
      Json before = parse_json(*text, kResults);
      if (before.at("question") == asked && !before.at("complete").get<bool>()) {
        Json& models = before.at("models");
        for (std::size_t i = models.size(); i-- > 0;)
          if (models.at(i).at("state") == "failed") models.erase(i);  // tried again
        document_ = std::move(before);
      }
    } catch (const std::exception&) {  // no results of a benchmark
    }
  if (!document_.is_null()) {
    std::vector<std::string> done;
    for (const Json& model : document_.at("models")) done.push_back(model.at("model"));
    earlier_ = join(done, ", ");
    return;
  }
  if (const auto moved = folder_.set_aside())
    print_error("headroom bench: " + to_string(*moved) + "\n");
  for (const char* name : {kResults, kPage, "run.json"}) folder_.claim(name);
  document_ = {{"schema", 1},
               {"complete", false},
               {"question", asked},
               {"cards", cards_json(question)},
               {"models", Json::array()}};
}

bool BenchResults::has(const std::string& model) const {
  for (const Json& one : document_.at("models"))
    if (one.at("model") == model) return true;
  return false;
}

void BenchResults::add(Json model) {
  document_["models"].push_back(std::move(model));
  write();
}

void BenchResults::complete() {
  document_["complete"] = true;
  write();
}

void BenchResults::write() {
  write_file_atomically(out_ / kPage, bench_page(document_));
  write_file_atomically(out_ / kResults, to_line(document_) + "\n");
}

}  // namespace headroom::cli
