#include "headroom/train/detail/run_files.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
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

std::unique_ptr<watch::RotatingFile> opened(const fs::path& path, std::int64_t done) {
  if (const auto before = read_file(path)) {
    std::string kept;
    std::istringstream lines(*before);
    for (std::string line; std::getline(lines, line);)
      if (is_up_to(line, done)) kept += line + "\n";
    write_file_atomically(path, kept);
  }
  return std::make_unique<watch::RotatingFile>(path, "");
}

std::vector<fs::path> files_of_a_run(const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") || name.starts_with("events.out.tfevents") ||
        name == "best" || name == "metrics.jsonl" || name == "plan_schedule.jsonl" ||
        name == "config.yaml" || name == "model" || name == "adapter")
      all.push_back(entry.path());
  }
  return all;
}

}  // namespace

bool has_a_run(const fs::path& out) {
  return !files_of_a_run(out).empty();
}

std::optional<fs::path> set_aside(const fs::path& out) {
  const std::vector<fs::path> old = files_of_a_run(out);
  if (old.empty()) return {};
  std::error_code error;
  int number = 1;
  while (fs::exists(out / ("earlier-" + std::to_string(number)))) ++number;
  const fs::path folder = out / ("earlier-" + std::to_string(number));
  fs::create_directory(folder, error);
  for (const fs::path& path : old)
    if (!error) fs::rename(path, folder / path.filename(), error);
  if (error) throw WriteError(write_failure(folder, error.value()));
  return folder;
}

RunFolder::RunFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) open_ = Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (error || !open_.is_open())
    throw WriteError(write_failure(folder, error ? error.value() : errno));
  if (::flock(open_.get(), LOCK_EX | LOCK_NB) != 0)
    throw BusyError("out", "another run writes in " + folder.string() +
                               "; try another folder, out=..., or wait for its end");
}

RunFiles::RunFiles(const fs::path& folder, std::int64_t done)
    : metrics_path_(folder / "metrics.jsonl"), plans_path_(folder / "plan_schedule.jsonl") {
  metrics_ = opened(metrics_path_, done);
  plans_ = opened(plans_path_, done);
  board_ = std::make_unique<EventFile>(folder, done + 1);
}

void RunFiles::step(const Progress& progress, Json memory) {
  const Committed& done = progress.committed;
  Json line = {{"step", progress.step},
               {"epoch", progress.epoch},
               {"loss", progress.loss},
               {"learning_rate", progress.learning_rate},
               {"rows", done.rows},
               {"rows_per_s", progress.rows_per_s},
               {"micro_batch", largest_part(done.plan, done.rows)},
               {"attempts", done.attempts}};
  board_->scalar("train/loss", progress.loss, progress.step);
  board_->scalar("train/learning_rate", progress.learning_rate, progress.step);
  board_->scalar("train/rows_per_s", progress.rows_per_s, progress.step);
  if (const double norm = done.gradient_norm(); norm == norm) {
    line["gradient_norm"] = norm;
    board_->scalar("train/gradient_norm", norm, progress.step);
  }
  for (const auto& [key, value] : memory.items()) {
    line[key] = value;
    board_->scalar("memory/" + key, value.get<double>(), progress.step);
  }
  board_->flush();
  metrics_->append(to_line(line) + "\n");
  plans_->append(to_line({{"step", progress.step}, {"plan", to_json(done.plan)}}) + "\n");
}

void RunFiles::evaluation(const Evaluated& result, std::int64_t step, std::int64_t micro_batch) {
  Json line = {{"step", step}, {"val_loss", result.loss}, {"val_rows", result.rows}};
  board_->scalar("evaluation/loss", result.loss, step);
  if (result.accuracy) {
    line["val_accuracy"] = *result.accuracy;
    board_->scalar("evaluation/accuracy", *result.accuracy, step);
  }
  board_->flush();
  metrics_->append(to_line(line) + "\n");
  const Plan plan{.micro_batch = micro_batch};
  plans_->append(to_line({{"step", step}, {"evaluation", to_json(plan)}}) + "\n");
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
