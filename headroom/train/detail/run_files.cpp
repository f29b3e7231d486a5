#include "headroom/train/detail/run_files.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::train::detail {
namespace {

namespace fs = std::filesystem;

// A line that a killed run left half-written counts as later.
bool is_up_to(const std::string& line, std::int64_t step) {
  const Json document = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return document.is_object() && document.contains("step") &&
         document["step"].is_number_integer() && document["step"].get<std::int64_t>() <= step;
}

std::unique_ptr<watch::RotatingFile> opened(const fs::path& path, std::int64_t done,
                                            const std::function<void(const std::string&)>& on_cut) {
  if (const auto before = read_file(path)) {
    std::string kept, cut;
    std::istringstream lines(*before);
    for (std::string line; std::getline(lines, line);)
      (is_up_to(line, done) ? kept : cut) += line + "\n";
    if (!cut.empty()) on_cut(cut);
    if (kept != *before) write_file_atomically(path, kept);  // also the end of a torn line
  }
  return std::make_unique<watch::RotatingFile>(path, "");
}

}  // namespace

RunFiles::RunFiles(RunFolder& run, const fs::path& folder, std::int64_t done) {
  constexpr const char* kCut = "metrics.cut.jsonl";
  for (const char* name : {"metrics.jsonl", "plan_schedule.jsonl"}) run.claim(name);
  metrics_.file = opened(folder / "metrics.jsonl", done, [&](const std::string& cut) {
    run.claim(kCut);
    write_file_atomically(folder / kCut, read_file(folder / kCut).value_or("") + cut);
  });
  plans_.file = opened(folder / "plan_schedule.jsonl", done, [](const std::string&) {});
  board_ = std::make_unique<EventFile>(folder, done + 1);
  run.made(board_->path().filename().string());
}

RunFiles::~RunFiles() {
  try {
    write_waiting();
  } catch (const WriteError&) {  // the files keep their lines
  }
}

void RunFiles::write(Lines& lines) {
  if (lines.waiting.empty()) return;
  lines.file->append(lines.waiting);
  lines.waiting.clear();
}

void RunFiles::add(Lines& lines, const Json& line) {
  lines.waiting += to_line(line) + "\n";
  try {
    write(lines);
  } catch (const WriteError&) {  // with the next line, or the next checkpoint
  }
}

void RunFiles::write_waiting() {
  write(metrics_);
  write(plans_);
}

void RunFiles::show() {
  try {
    board_->flush();
  } catch (const WriteError&) {  // lost; the file goes on with the next
  }
}

void RunFiles::step(const Progress& progress, Json memory) {
  const Committed& done = progress.committed;
  Json line = {{"step", progress.step},
               {"epoch", progress.epoch},
               {"loss", progress.loss},
               {"learning_rate", progress.learning_rate},
               {"rows", done.rows},
               {"rows_per_s", progress.rows_per_s},
               {"micro_batch", done.micro_batch},
               {"attempts", done.attempts}};
  board_->scalar("train/loss", progress.loss, progress.step);
  board_->scalar("train/learning_rate", progress.learning_rate, progress.step);
  board_->scalar("train/attempts", done.attempts, progress.step);  // above 1: memory ran out
  board_->scalar("train/rows_per_s", progress.rows_per_s, progress.step);
  if (const double norm = done.gradient_norm(); norm == norm) {
    line["gradient_norm"] = norm;
    board_->scalar("train/gradient_norm", norm, progress.step);
  }
  for (const auto& [key, value] : memory.items()) {
    line[key] = value;
    if (value.is_number())
      board_->scalar("memory/" + key, value.get<double>(), progress.step);
    else
      show_cards(value, progress.step);
  }
  show();
  add(metrics_, line);
  add(plans_, {{"step", progress.step}, {"plan", to_json(done.plan)}});
}

void RunFiles::show_cards(const Json& cards, std::int64_t step) {
  for (const Json& card : cards)
    for (const auto& [key, value] : card.items())
      if (value.is_number())
        board_->scalar("memory/" + card.at("device").get<std::string>() + " " + key,
                       value.get<double>(), step);
}

void RunFiles::evaluation(const Evaluated& result, std::int64_t step, std::int64_t micro_batch) {
  Json line = {{"step", step}, {"val_loss", result.loss}, {"val_rows", result.rows}};
  board_->scalar("evaluation/loss", result.loss, step);
  if (result.accuracy) {
    line["val_accuracy"] = *result.accuracy;
    board_->scalar("evaluation/accuracy", *result.accuracy, step);
  }
  show();
  add(metrics_, line);
  const Plan plan{.micro_batch = micro_batch};
  add(plans_, {{"step", step}, {"evaluation", to_json(plan)}});
}

PlanSchedule::PlanSchedule(const fs::path& file) {
  std::istringstream lines(read_input(file));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = file.string() + ":" + std::to_string(++number);
    if (line.empty()) continue;
    const Json document = parse_json(line, place);
    const bool has_step =
        document.is_object() && document.contains("step") && document["step"].is_number_integer();
    const bool is_evaluation = has_step && document.contains("evaluation");
    if (!has_step || (!is_evaluation && !document.contains("plan")))
      throw InputError(place, R"(expected {"step": 1, "plan": {...}}, received )" + line);
    (is_evaluation ? evaluations_ : plans_)[document["step"].get<std::int64_t>()] =
        plan_from(document[is_evaluation ? "evaluation" : "plan"], place);
  }
  if (plans_.empty())
    throw InputError(file.string(), "expected a plan for each step, received none");
}

Plan PlanSchedule::at(std::int64_t step) const {
  const auto later = plans_.upper_bound(step);
  return later == plans_.begin() ? later->second : std::prev(later)->second;
}

std::optional<std::int64_t> PlanSchedule::evaluation_at(std::int64_t step) const {
  const auto later = evaluations_.upper_bound(step);
  if (later == evaluations_.begin()) return {};
  return std::prev(later)->second.micro_batch;
}

}  // namespace headroom::train::detail
