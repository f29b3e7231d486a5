#include "headroom/plan/plan_report.h"

#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <system_error>

#include "headroom/base/file.h"
#include "headroom/base/json.h"

namespace headroom::plan {

constexpr const char* kReportVariable = "HEADROOM_REPORT";

void write_plan_report(const PlanReport& report) {
  const auto file = environment(kReportVariable);
  if (!file || file->empty()) return;
  const Json document{{"schema", 1}, {"needed_bytes", report.needed.count}, {"plan", report.plan}};
  write_file_atomically(*file, headroom::to_line(document) + "\n");
}

std::optional<PlanReport> read_plan_report(const std::filesystem::path& file) {
  const auto text = read_file(file);
  const Json document = text ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json();
  if (!document.is_object() || !document.contains("needed_bytes") || !document.contains("plan") ||
      !document["needed_bytes"].is_number_integer() || !document["plan"].is_string())
    return {};
  return PlanReport{Bytes{document["needed_bytes"].get<std::int64_t>()},
                    document["plan"].get<std::string>()};
}

PlanReportFile::PlanReportFile() {
  static std::atomic<int> number{0};
  std::error_code error;
  path_ = std::filesystem::temp_directory_path(error) /
          ("headroom-report-" + std::to_string(::getpid()) + "-" + std::to_string(++number));
  std::filesystem::remove(path_, error);
}

PlanReportFile::~PlanReportFile() {
  std::error_code error;
  std::filesystem::remove(path_, error);
}

std::string PlanReportFile::variable() const {
  return std::string(kReportVariable) + "=" + path_.string();
}

}  // namespace headroom::plan
