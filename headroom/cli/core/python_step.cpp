#include "headroom/cli/core/python_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/answer/words.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/job/job.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/rehearse/python.h"

namespace headroom::cli {

bool is_python_step(const std::string& model) {
  if (model.ends_with(".py"))
    return true;  // no function given: the Python side lists those of the file
  const std::size_t colon = model.rfind(".py:");
  return colon != std::string::npos && colon > 0 && model.size() > colon + 4;
}

std::vector<std::string> files_of(const std::string& model) {
  return {model, model.substr(0, model.rfind(':'))};
}

Json python_request(const ModelRequest& request, const std::vector<std::string>& known) {
  const std::vector<std::string> given = request.settings.given();
  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : given)
    if (!is_in(known, name))
      throw UsageError(
          expectation(name, "the name of a model for " + name, request.model,
                      "leaving it out: what " + request.model + " returns is what runs"));
  const model::Settings settings = request.settings.settings();
  if (settings.mode == model::Mode::generate)
    throw UsageError(expectation("--mode", "train or inference for a Python function", "generate"));
  Json json = {{"function", request.model},
               {"cards", Json::array()},
               {"batch", is_in(given, "--batch") ? Json(settings.batch) : Json()},
               {"mode", is_in(given, "--mode") ? Json(to_string(settings.mode)) : Json()},
               {"rules", request.rules},
               {"allocator", request.allocator ? Json(*request.allocator) : Json()}};
  for (const auto& card : machine::cards_to_fill(request.gpus))
    json["cards"].push_back(gpu::to_json(card));
  return json;
}

PythonStep::PythonStep(const std::string& what, Json request, bool quiet)
    : request_(std::move(request)) {
  const rehearse::Python python = rehearse::python_with_package();
  request_["folder"] = folder_.path().string();
  std::vector<std::string> command{python.program, "-m", "headroom.command", what,
                                   to_line(request_)};
  if (quiet) command = rehearse::with_output_in(folder_.path() / "output", command);
  job::Job job({.command = command, .environment = python.environment, .output_to_error = true});
  const job::JobEnd end = job.run(Seconds(0), {});
  if (!end.started) throw UnavailableError(python.program, end.not_started);
  exit_code_ = end.exit_code;
  if (exit_code_ == kOk)
    found_ = parse_json(read_file(folder_.path() / "found.json").value_or(""),
                        "the figures of a step in Python");
}

std::vector<gpu::SimulatedCard> PythonStep::cards() const {
  std::vector<gpu::SimulatedCard> cards;
  for (const Json& card : request_.at("cards")) cards.push_back(gpu::card_from_json(card));
  return cards;
}

answer::Answer PythonStep::answer() const {
  answer::Answer answer{.model = request_.at("function").get<std::string>(),
                        .parameters = found_.at("parameters").get<long long>(),
                        .trainable_parameters = found_.at("trainable_parameters").get<long long>(),
                        .notes = found_.at("notes").get<std::vector<std::string>>()};
  std::vector<trace::Report> reports;
  for (const Json& report : found_.at("reports"))
    reports.push_back(trace::report_from_json(report));
  const std::vector<gpu::SimulatedCard> cards = this->cards();
  for (std::size_t i = 0; i < cards.size(); ++i)
    answer.cards.push_back({.card = cards[i],
                            .peak = reports[i].peak,
                            .fits = reports[i].fits(),
                            .spare = gpu::usable(cards[i]) - reports[i].peak.process});
  const answer::OnCard* on = answer.tightest();
  answer.report = reports[on != nullptr ? static_cast<std::size_t>(on - answer.cards.data()) : 0];
  if (std::string warning = trace::warning_of(answer.report); !warning.empty())
    answer.notes.push_back(std::move(warning));
  if (!answer.report.assumptions.empty())
    answer.notes.push_back(answer::assumptions_words(answer.report.assumptions));
  return answer;
}

std::filesystem::path PythonStep::events_of(const answer::Answer& answer) const {
  const answer::OnCard* on = answer.tightest();
  const auto index = on != nullptr ? on - answer.cards.data() : 0;
  return folder_.path() / ("card-" + std::to_string(index) + ".trace");
}

std::vector<rehearse::TriedAdvice> advice_for(const Json& request, const answer::Answer& now) {
  Json trial = request;
  trial["keep_events"] = false;
  if (const answer::OnCard* on = now.tightest()) trial["cards"] = {gpu::to_json(on->card)};
  std::vector<rehearse::TriedAdvice> advice;
  for (const rehearse::TriedChange& change : rehearse::kTriedChanges) {
    if (!change.is_of_steps) continue;
    print_error(std::string("headroom estimate: trying ") + change.name + "\n");
    trial["change"] = change.name;
    const PythonStep step("estimate", trial, /*quiet=*/true);
    if (step.exit_code() != kOk) {
      print_error(std::string("headroom estimate: the function fails with ") + change.name + "\n");
      continue;
    }
    const answer::Answer with = step.answer();
    advice.push_back({.change = change,
                      .was_made = step.found().at("change_made").get<bool>(),
                      .needs = with.report.peak.process,
                      .saves = now.report.peak.process - with.report.peak.process,
                      .allocated = with.report.peak.allocated,
                      .fits = now.tightest() != nullptr && !with.does_not_fit()});
  }
  return rehearse::least_first(std::move(advice));
}

answer::Fit PythonStep::fit() const {
  const std::vector<gpu::SimulatedCard> cards = this->cards();
  answer::Fit fit{.model = request_.at("function").get<std::string>(),
                  .card = *std::min_element(cards.begin(), cards.end(),
                                            [](const auto& one, const auto& other) {
                                              return gpu::usable(one) < gpu::usable(other);
                                            }),
                  .capped = found_.at("capped").get<bool>(),
                  .is_proven = found_.at("proven").get<bool>(),
                  .notes = found_.at("notes").get<std::vector<std::string>>()};
  const auto size_of = [&](const char* key) -> std::optional<std::int64_t> {
    const Json& size = found_.at(key);
    return size.is_null() ? std::nullopt : std::optional(size.get<std::int64_t>());
  };
  fit.size = size_of("size");
  fit.recommended = size_of("recommended");
  const Bytes context = gpu::usable(fit.card) - room_of(fit.card);
  for (const Json& probe : found_.at("probes")) {
    const Bytes reserved = bytes_from(probe.at("peak_reserved_bytes"));
    fit.tried.push_back({.size = probe.at("size").get<std::int64_t>(),
                         .fits = probe.at("fits").get<bool>(),
                         .process = reserved + context,
                         .reserved = reserved});
  }
  return fit;
}

answer::ProfileAnswer PythonStep::profile() const {
  answer::ProfileAnswer answer{
      .model = request_.at("function").get<std::string>(),
      .parameters = found_.at("parameters").get<long long>(),
      .trainable_parameters = found_.at("trainable_parameters").get<long long>(),
      .fits = found_.at("fits").get<bool>(),
      .steps = request_.at("steps").get<int>(),
      .notes = found_.at("notes").get<std::vector<std::string>>()};
  if (const auto cards = this->cards(); !cards.empty()) answer.card = cards.front();
  return answer;
}

}  // namespace headroom::cli
