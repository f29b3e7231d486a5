#include "headroom/cli/core/benching/benched_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/place_of_training.h"
#include "headroom/cli/core/planning/plan_document.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/training_config.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/config/training_keys.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/job/job.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::cli {
namespace {

// As `headroom bench` trains where nothing else is said.
constexpr std::int64_t kUsualSeq = 1024;
// Adapters over quantised weights get a share of the samples: they are not compared with the rest.
constexpr std::int64_t kLeastQuantised = 10, kQuantisedShare = 4;

// Of a file or folder, its own name.
std::string shown(const std::string& model) {
  std::filesystem::path path = model;
  if (!path.has_filename()) path = path.parent_path();  // "runs/model/"
  return path.filename().string();
}

void say(const std::string& line) {
  print_error("headroom bench: " + line + "\n");
}

bool fixes(const PlanQuestion& question, const std::string& key) {
  return std::any_of(question.keys.begin(), question.keys.end(), [&](const std::string& word) {
    return word == key || word.starts_with(key + "=");
  });
}

config::Training training_of_keys(const std::vector<std::string>& words) {
  config::Resolved config = config::resolve(config::training_keys(), {.overrides = words});
  return config::Training(std::move(config));
}

// ---- One card ----

// Where a program that knows one card alone would have ended, with these keys.
Json on_one_card(const PlanQuestion& asked, const TuneWay& way,
                 const std::vector<std::string>& more) {
  const config::Training training = training_of(asked, way, more);
  const auto largest =
      std::max_element(asked.cards.begin(), asked.cards.end(),
                       [](const auto& one, const auto& other) { return one.total < other.total; });
  const std::string name = gpu::find_card(largest->name) != nullptr
                               ? largest->name
                               : std::to_string(largest->total.count);
  const Json request{
      {"what", "one card"}, {"config", training.config.given()}, {"gpus", "sim:1x" + name}};
  const CommandResult answer = run_engine({"bench", to_line(request)}, "", Seconds(600));
  if (!answer.started || answer.exit_code != kOk) return nullptr;
  Json entry = parse_json(answer.out, "the engine's answer");
  entry["dtype"] = model::to_json(training.settings).at("dtype");
  return entry;
}

Json on_one_card(const PlanQuestion& asked) {
  const TuneWay way = ways_of(asked).front();
  Json all = Json::array();
  const auto add = [&](const std::vector<std::string>& more) {
    try {
      const Json one = on_one_card(asked, way, more);
      if (!one.is_null()) all.push_back(one);
    } catch (const UsageError&) {  // other settings are for no float32
    }
  };
  add({});
  if (fixes(asked, "dtype") && !fixes(asked, "dtype=float32")) add({"dtype=float32"});
  return all;
}

// ---- The run ----

// A place is for one model: its lease, and variables such as CUDA_VISIBLE_DEVICES.
class PlaceOfOneModel {
 public:
  PlaceOfOneModel() : before_(environment_with({})) {}
  ~PlaceOfOneModel() {
    give_place_back();
    ::clearenv();
    for (const std::string& variable : before_)
      if (const std::size_t equals = variable.find('='); equals != std::string::npos)
        ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  PlaceOfOneModel(const PlaceOfOneModel&) = delete;
  PlaceOfOneModel& operator=(const PlaceOfOneModel&) = delete;

 private:
  std::vector<std::string> before_;
};

struct Try {
  Json run;  // what the engine measured; null if it wrote nothing
  int exit_code = kFailed;
  std::string last_line;
};

std::string last_line_of(const std::string& output) {
  const std::string_view text = trim(output);
  return std::string(text.substr(text.rfind('\n') + 1));
}

Try train(const BenchQuestion& question, const PlanQuestion& asked, const Json& plan,
          std::int64_t samples, const std::string& trace) {
  auto words = plan.at("keys").get<std::vector<std::string>>();
  for (const std::string& more :
       {std::string("dataset=synthetic"), std::string("weights=random"),
        "examples=" + std::to_string(samples), std::string("epochs=1"),
        std::string(question.computes ? "num_workers=2" : "num_workers=0"),
        "clear_cache_every_n_steps=" + std::to_string(question.clean_every)})
    words.push_back(more);
  const config::Training training = training_of_keys(words);
  const gpu::Devices devices = gpu::devices_from(asked.gpus);
  const bool is_simulated = devices.kind == gpu::Devices::Kind::simulated;
  const PlaceOfOneModel for_this_one;
  const auto place = take_place(training, devices);
  if (!place) throw UsageError(expectation("--gpus", "cards to train on", "the CPU"));
  const std::filesystem::path result = question.out / "run.json";
  std::filesystem::remove(result);
  Json request{{"what", "train"},
               {"name", shown(asked.model)},
               {"config", training.config.given()},
               {"gpus", devices.text},
               {"cards", place->cards},
               {"uuids", place->uuids},
               {"lease", or_null(place->lease)},
               {"usable_bytes", Json::array()},
               {"dry_run", is_simulated && !question.computes},
               {"snapshot", nullptr},
               {"html", nullptr},
               {"inject", question.inject},
               {"trace", nullptr},
               {"result", result.string()}};
  if (question.trace) request["trace"] = (std::filesystem::path(*question.trace) / trace).string();
  EngineCommand command = engine_command({"bench", to_line(request)});
  if (const std::string allocator = training.config.text("alloc_conf"); !allocator.empty())
    command.environment.push_back("PYTORCH_CUDA_ALLOC_CONF=" + allocator);
  job::Launch launch{
      .command = command.words, .environment = command.environment, .output_to_error = true};
  if (place->lease) launch.inherited.push_back(*place->lease);
  job::Job job(std::move(launch));
  const job::JobEnd end = job.run(Seconds(0), {});
  if (end.received) throw Stopped(*end.received);
  Try done{.exit_code = end.exit_code, .last_line = last_line_of(end.last_output)};
  if (const auto text = read_file(result)) done.run = parse_json(*text, result.string());
  std::filesystem::remove(result);
  return done;
}

// ---- The entry ----

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// By card of the question, what a run has by rank.
Json by_card(const PlanQuestion& asked, const Json& plan, const Json& run, const char* figure) {
  Json all = Json::array();
  for (std::size_t i = 0; i < asked.cards.size(); ++i) all.push_back(0);
  for (std::size_t rank = 0; rank < plan.at("split").size(); ++rank)
    all.at(plan["split"][rank].at("gpu").get<std::size_t>()) = run.at("cards").at(rank).at(figure);
  return all;
}

// Of real steps the median, without the first one, which takes longer.
double seconds_of(const Json& run, double predicted) {
  auto seconds = run.at("step_s").get<std::vector<double>>();
  if (seconds.empty()) return predicted;
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  return median(std::move(seconds));
}

// Of a run that did not finish, only what was measured.
void add_run(Json& entry, const PlanQuestion& asked, const Json& plan, const Try& done) {
  const Json& run = done.run;
  const bool is_finished = done.exit_code == kOk;
  const double step = seconds_of(run, entry.at("predicted").at("step_s"));
  const auto rows = static_cast<double>(asked.rows), samples = run.at("samples").get<double>();
  const auto if_finished = [&](auto value) { return is_finished ? Json(value) : Json(); };
  entry["dry"] = run.at("dry");
  entry["samples"] = if_finished(run.at("samples").get<std::int64_t>());
  entry["steps"] = if_finished(run.at("steps").get<std::int64_t>());
  entry["steps_run"] = run.at("steps_run");
  entry["steps_repeated"] =
      if_finished(run.at("steps").get<std::int64_t>() - run.at("steps_run").get<std::int64_t>());
  entry["step_s"] = if_finished(step);
  entry["total_s"] = if_finished(samples / rows * step);
  entry["samples_per_s"] = if_finished(rows / step);
  entry["loss_before"] = run.at("loss_before");
  entry["loss_after"] = run.at("loss_after");
  for (const char* figure :
       {"resident_bytes", "peak_requested_bytes", "peak_reserved_bytes", "last_reserved_bytes",
        "evaluation_reserved_bytes", "left_bytes", "over_time"})
    entry[figure] = by_card(asked, plan, run, figure);
  const Json& events = run.at("events");
  entry["events"] = events;
  entry["ooms"] = std::count_if(events.begin(), events.end(), [](const Json& event) {
    return event.at("kind") == "oom" || event.at("kind") == "spill";
  });
}

std::string why_not(const Json& document) {
  std::string why = document.at("refused_ways").back().at("why_not");
  if (const Json& needed = document.at("cards_needed"); !needed.is_null())
    why +=
        fmt::format("; {} like the largest one would hold it", counted(needed.get<int>(), "card"));
  return why;
}

}  // namespace

PlanQuestion BenchQuestion::of(const std::string& model) const {
  return plan.question(model, {.seq = kUsualSeq, .bfloat16 = true});
}

Json benched_model(const BenchQuestion& question, const std::string& model) {
  PlanQuestion asked = question.of(model);
  const model::NamedModel named = model::model_named(asked.model);
  const Json begin{{"model", model},
                   {"name", named.name},
                   {"parameters", forecast::count_parameters(named.config)},
                   {"effective_batch", asked.rows},
                   {"state", "failed"},
                   {"why", nullptr}};
  Json tries = Json::array(), one_card;
  for (;;) {
    Json entry = begin;
    entry["tries"] = tries;
    entry["one_card"] = one_card;
    entry["lighter"] = !tries.empty();
    const Clock::time_point begun = Clock::now();
    const Json document = plan_document(asked);
    entry["planning_s"] = Seconds(Clock::now() - begun).count();
    entry["way"] = document.at("way");
    entry["policy"] = document.at("policy");
    const Json plan = document.at("chosen");
    if (one_card.is_null())
      entry["one_card"] = one_card =
          plan.is_null() || plan.at("split").size() > 1 ? on_one_card(asked) : Json::array();
    if (plan.is_null()) {
      entry["state"] = tries.empty() ? "does not fit" : "out of memory";
      entry["why"] = why_not(document);
      entry["cards_needed"] = document.at("cards_needed");
      return entry;
    }
    entry["plan"] = plan;
    entry["command"] = document.at("command");
    entry["predicted"] = document.at("predicted");
    const bool is_quantised = plan.at("quantize") != "none";
    const std::int64_t samples =
        is_quantised ? std::min(question.samples,
                                std::max(kLeastQuantised, question.samples / kQuantisedShare))
                     : question.samples;
    entry["comparable"] = !is_quantised;
    say(fmt::format("{}: {}, {} a step on {}", shown(model), document.at("way").get<std::string>(),
                    step_time_text(document.at("predicted").at("step_s")),
                    counted(static_cast<int>(plan.at("split").size()), "card")));
    const auto number = std::find(question.models.begin(), question.models.end(), model) -
                        question.models.begin() + 1;
    const Try done = train(question, asked, plan, samples,
                           fmt::format("{}-{}{}.hrtrace", number, shown(model),
                                       tries.empty() ? "" : fmt::format("-{}", tries.size() + 1)));
    if (!done.run.is_null()) add_run(entry, asked, plan, done);
    if (done.exit_code == kOk) {
      entry["state"] = "finished";
      return entry;
    }
    if (done.exit_code != kOutOfMemory) {
      entry["why"] = done.last_line;
      return entry;
    }
    tries.push_back({{"way", document.at("way")},
                     {"plan", plan},
                     {"why", done.run.is_null() ? Json(done.last_line) : done.run.at("no_room")},
                     {"events", done.run.is_null() ? Json() : done.run.at("events")}});
    asked.tune = Tune::any;
    asked.lighter_than = document.at("way_number").get<int>();
    if (ways_of(asked).empty()) {
      entry["tries"] = tries;
      entry["state"] = "out of memory";
      entry["why"] = "no lighter way to train it is left";
      return entry;
    }
    say(shown(model) + ": out of memory in this plan; a lighter one follows");
  }
}

}  // namespace headroom::cli
