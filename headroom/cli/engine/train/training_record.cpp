#include "headroom/cli/engine/train/training_record.h"

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/sim/tensor.h"
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

void TrainingRecord::know(const TrainingJob& job) {
  using trace::Category;
  const torch::nn::Module& module = job.model->module();
  for (const at::Tensor& parameter : module.parameters()) know(parameter, Category::parameter);
  for (const at::Tensor& buffer : module.buffers()) know(buffer, Category::buffer);
  const std::vector<at::Tensor>& trained = job.optimizer->parameters();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    know(trained[i].grad(), Category::gradient);
    for (const auto& [name, tensor] : job.optimizer->state(i)) know(tensor, Category::optimizer);
  }
}

void TrainingRecord::know(const at::Tensor& tensor, trace::Category category) {
  if (!tensor.defined()) return;
  const auto simulated = sim::address_of(tensor);
  known_[simulated.value_or(reinterpret_cast<std::uint64_t>(tensor.storage().data()))] = category;
}

std::vector<trace::Event> TrainingRecord::events() const {
  std::vector<trace::Event> all;
  std::unordered_map<std::uint64_t, std::size_t> live;  // by address: the event that allocated
  for (std::uint64_t i = recorder_->dropped(); i < recorder_->recorded(); ++i) {
    const trace::Event& event = recorder_->event(i);
    if (event.kind == trace::Kind::alloc) live[event.address] = all.size();
    if (event.kind == trace::Kind::free_requested) live.erase(event.address);
    all.push_back(event);
  }
  for (const auto& [address, category] : known_)
    if (const auto found = live.find(address); found != live.end())
      all[found->second].category = category;
  return all;
}

void TrainingRecord::write(const std::vector<std::string>& notes) {
  if (!history_) return;
  history_.reset();
  const std::vector<trace::Event> all = events();
  const auto read = [&] { return trace::read_events(all, recorder_->names(), about_); };
  if (!trace_.empty()) {
    trace::TraceWriter writer(trace_, about_, recorder_->names());
    for (const trace::Event& event : all) writer.append(event);
    writer.close();
  }
  if (!snapshot_.empty()) trace::export_snapshot(snapshot_, *read());
  if (!html_.empty())
    trace::export_page(html_, *read(), {}, {.title = "headroom train", .notes = notes});
}

}  // namespace headroom::cli
