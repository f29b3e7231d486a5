#include "headroom/cli/engine/train/training_record.h"

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/engine/request.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/page/page.h"
#include "headroom/page/timeline.h"
#include "headroom/sim/tensor.h"
#include "headroom/trace/export.h"
#include "headroom/trace/file_writer.h"
#include "headroom/trace/memory_reader.h"

namespace headroom::cli {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// The settings that were chosen, and those that everyone asks about.
Facts facts_of(const config::Resolved& config) {
  Facts facts;
  for (const config::Entry& entry : config.entries()) {
    const bool is_asked =
        entry.key == "model" || entry.key == "dataset" || entry.key == "batch_size";
    if (entry.value && (is_asked || entry.origin != "default"))
      facts.emplace_back(entry.key, *entry.value);
  }
  return facts;
}

// "h.0.attn" of "h.0.attn.weight"
std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// The categories that the lives of all other tensors show. No parameter is among them: those are
// known.
void categorise_by_life(std::vector<trace::Event>& events, const trace::Names& names,
                        const trace::About& about) {
  const page::Timeline timeline = page::timeline_of(*trace::read_events(events, names, about));
  for (const page::TensorLife& tensor : timeline.tensors) {
    trace::Event& made = events[timeline.event_numbers[tensor.born]];
    const trace::Category category = timeline.origins[tensor.origin].category;
    if (made.kind == trace::Kind::alloc && made.category == trace::Category::unknown &&
        category != trace::Category::parameter)
      made.category = category;
  }
}

}  // namespace

TrainingRecord::TrainingRecord(const Json& request, const TrainingMachine& machine,
                               const config::Training& training)
    : device_(machine.own) {
  trace_ = text_or_none(request.at("trace"));
  snapshot_ = text_or_none(request.at("snapshot"));
  html_ = text_or_none(request.at("html"));
  title_ = "headroom train " + training.short_name();
  about_.program = "headroom train";
  about_.times_are_known = true;
  about_.facts = facts_of(training.config);
  if (machine.box()) {
    const sim::CardOptions& card = machine.box()->card(machine.own.index()).options();
    about_.settings = allocator::to_string(card.settings);
    about_.facts.emplace_back("card", card.name);
    about_.capacity = card.capacity - card.context;
  } else if (machine.own.is_cuda()) {
    about_.settings =
        allocator::to_string(allocator::effective_settings([](const std::string& name) {
                               return environment(name.c_str());
                             }).settings);
  }
  const auto injected = request.at("inject").get<std::vector<std::string>>();
  if (!injected.empty() && !machine.box())
    throw UsageError(expectation("--inject", "simulated cards", "others", "--gpus sim:1x24GiB"));
  const bool is_kept = !trace_.empty() || !snapshot_.empty() || !html_.empty();
  if (!is_kept && injected.empty()) return;
  recorder_ = std::make_unique<trace::Recorder>(trace::RecorderOptions{is_kept ? 0U : 1U});
  history_ = std::make_unique<memory::History>(machine.own, *recorder_);
  std::vector<sim::Injector> all;
  for (const std::string& one : injected) {
    injected_.emplace_back(one, sim::Happened());
    all.push_back(sim::noted(sim::parse_injection(one, lift_), injected_.back().second));
  }
  if (!all.empty())
    injection_ = std::make_unique<sim::InjectionScope>(*machine.box(), sim::any_of(all));
}

void TrainingRecord::hear(const train::Event& event) const {
  using Kind = train::Event::Kind;
  if (event.kind == Kind::shrink || event.kind == Kind::technique || event.kind == Kind::device ||
      event.kind == Kind::allocator || event.kind == Kind::thrash)
    lift_.now();
}

void TrainingRecord::know(const recipe::Model& made) {
  using trace::Category;
  const torch::nn::Module& module = made.model->module();
  std::unordered_map<const void*, std::string> modules;  // of each parameter
  for (const auto& parameter : module.named_parameters()) {
    const std::string name = module_of(parameter.key());
    modules[parameter.value().unsafeGetTensorImpl()] = name;
    for (const at::Tensor& part : libtorch::memory_of(parameter.value()))
      know(part, Category::parameter, name);
  }
  for (const auto& buffer : module.named_buffers())
    know(buffer.value(), Category::buffer, module_of(buffer.key()));
  const std::vector<at::Tensor>& trained = made.optimizer->parameters();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::string name = modules[trained[i].unsafeGetTensorImpl()];
    know(trained[i].grad(), Category::gradient, name);
    for (const auto& [state, tensor] : made.optimizer->state(i))
      know(tensor, Category::optimizer, name);
  }
}

void TrainingRecord::know(const at::Tensor& tensor, trace::Category category,
                          const std::string& module) {
  if (!tensor.defined()) return;
  const auto simulated = sim::address_of(tensor);
  known_[simulated.value_or(reinterpret_cast<std::uint64_t>(tensor.storage().data()))] = {category,
                                                                                          module};
}

std::vector<trace::Event> TrainingRecord::events(trace::Names& names) const {
  std::vector<trace::Event> all;
  std::unordered_map<std::uint64_t, std::size_t> live;  // by address: the event that allocated
  for (std::uint64_t i = recorder_->dropped(); i < recorder_->recorded(); ++i) {
    const trace::Event& event = recorder_->event(i);
    if (event.kind == trace::Kind::alloc) live[event.address] = all.size();
    if (event.kind == trace::Kind::free_requested) live.erase(event.address);
    all.push_back(event);
  }
  for (const auto& [address, known] : known_)
    if (const auto found = live.find(address); found != live.end()) {
      all[found->second].category = known.category;
      if (!known.module.empty()) all[found->second].module = names.number(known.module);
    }
  categorise_by_life(all, names, about_);
  return all;
}

std::vector<std::string> TrainingRecord::not_injected() const {
  std::vector<std::string> all;
  for (const auto& [text, happened] : injected_)
    if (!happened.at_all()) all.push_back(text);
  return all;
}

void TrainingRecord::write(const std::vector<std::string>& notes, bool survived) {
  if (!history_) return;
  history_.reset();
  if (device_.is_cuda()) about_.capacity = memory::get_gpu_memory_stats(device_).total;
  trace::Names names = recorder_->names();
  const std::vector<trace::Event> all = events(names);
  const auto read = [&] { return trace::read_events(all, names, about_); };
  if (!trace_.empty()) {
    trace::TraceWriter writer(trace_, about_, names);
    for (const trace::Event& event : all) writer.append(event);
    writer.close();
  }
  if (!snapshot_.empty()) trace::export_snapshot(snapshot_, *read());
  if (!html_.empty())
    page::export_page(html_, *read(), {}, {.title = title_, .notes = notes, .survived = survived});
  tell_of_outputs("train", {trace_, snapshot_, html_});
}

}  // namespace headroom::cli
