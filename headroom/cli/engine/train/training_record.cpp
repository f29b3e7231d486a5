#include "headroom/cli/engine/train/training_record.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/trace/export.h"
#include "headroom/trace/file_writer.h"
#include "headroom/trace/memory_reader.h"
#include "headroom/trace/page.h"

namespace headroom::cli {

TrainingRecord::TrainingRecord(const Json& request, const TrainingMachine& machine) {
  const auto text = [&](const char* key) {
    const Json& value = request.at(key);
    return value.is_null() ? std::string() : value.get<std::string>();
  };
  trace_ = text("trace");
  snapshot_ = text("snapshot");
  html_ = text("html");
  about_.program = "headroom train";
  about_.times_are_known = true;
  for (const Json& word : request.at("overrides")) {
    const std::string setting = word.get<std::string>();
    const std::size_t equals = setting.find('=');
    about_.facts.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  const auto injected = request.at("inject").get<std::vector<std::string>>();
  if (!injected.empty() && !machine.box())
    throw UsageError(expectation("--inject", "simulated cards", "others", "--gpus sim:1x24GiB"));
  const bool is_kept = !trace_.empty() || !snapshot_.empty() || !html_.empty();
  if (!is_kept && injected.empty()) return;
  recorder_ = std::make_unique<trace::Recorder>(trace::RecorderOptions{is_kept ? 0U : 1U});
  history_ = std::make_unique<memory::History>(machine.own, *recorder_);
  std::vector<sim::Injector> all;
  for (const std::string& one : injected) all.push_back(sim::parse_injection(one, lift_));
  if (!all.empty())
    injection_ = std::make_unique<sim::InjectionScope>(*machine.box(), sim::any_of(all));
}

void TrainingRecord::hear(const train::Event& event) const {
  using Kind = train::Event::Kind;
  if (event.kind == Kind::shrink || event.kind == Kind::technique || event.kind == Kind::device ||
      event.kind == Kind::allocator || event.kind == Kind::thrash)
    lift_.now();
}

void TrainingRecord::write(const std::vector<std::string>& notes) {
  if (!history_) return;
  history_.reset();
  if (!trace_.empty()) {
    trace::TraceWriter writer(trace_, about_, recorder_->names());
    for (std::uint64_t i = 0; i < recorder_->recorded(); ++i) writer.append(recorder_->event(i));
    writer.close();
  }
  if (!snapshot_.empty()) trace::export_snapshot(snapshot_, *trace::read_memory(*recorder_));
  if (!html_.empty())
    trace::export_page(html_, *trace::read_memory(*recorder_, about_), {},
                       {.title = "headroom train", .notes = notes});
}

}  // namespace headroom::cli
