// A program's report of its own plan to the `headroom run` that started it: HEADROOM_REPORT names a
// small file, which `headroom train` writes before its first step and the run reads at its end.
//
//   write_plan_report({.needed = 9_GiB, .plan = "micro-batch 8"});   // in the program
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "headroom/base/bytes.h"

namespace headroom::plan {

struct PlanReport {
  Bytes needed;      // of a card
  std::string plan;  // in words
};

// Does nothing without the variable. Throws WriteError.
void write_plan_report(const PlanReport& report);
// std::nullopt if the program wrote no such report.
[[nodiscard]] std::optional<PlanReport> read_plan_report(const std::filesystem::path& file);

// A file for the reports of one try, removed with this object.
class PlanReportFile {
 public:
  PlanReportFile();
  ~PlanReportFile();
  PlanReportFile(const PlanReportFile&) = delete;
  PlanReportFile& operator=(const PlanReportFile&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string variable() const;  // "HEADROOM_REPORT=..."

 private:
  std::filesystem::path path_;
};

}  // namespace headroom::plan
