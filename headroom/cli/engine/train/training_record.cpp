#include "headroom/cli/engine/train/training_record.h"

#include <torch/nn/module.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/first_failure.h"
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

// Without a file only an injection, or a benchmark's curve of a step, looks at them.
constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 19;

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

trace::About about_of(c10::Device device, const TrainingMachine& machine,
                      const config::Training& training) {
  trace::About about;
  about.program = "headroom train";
  about.times_are_known = true;
  about.facts = facts_of(training.config);
  if (machine.own.size() > 1) about.facts.emplace_back("device", device.str());
  if (machine.box()) {
    const sim::CardOptions& card = machine.box()->card(device.index()).options();
    about.settings = allocator::to_string(card.settings);
    about.facts.emplace_back("card", card.name);
    about.capacity = card.capacity - card.context;
  } else if (device.is_cuda()) {
    about.settings =
        allocator::to_string(allocator::effective_settings([](const std::string& name) {
                               return environment(name.c_str());
                             }).settings);
  }
  return about;
}

// "run.html" of sim:1 is "run.sim1.html".
std::string with_device(const std::string& file, c10::Device device) {
  if (file.empty()) return file;
  const std::filesystem::path path = file;
  std::string name = device.str();
  std::erase(name, ':');
  return (path.parent_path() / path.stem()).string() + "." + name + path.extension().string();
}

}  // namespace

TrainingRecord::TrainingRecord(const Json& request, const TrainingMachine& machine,
                               const config::Training& training)
    : files_{text_or_none(request.at("trace")), text_or_none(request.at("snapshot")),
             text_or_none(request.at("html"))},
      title_("headroom train " + training.short_name()) {
  const auto injected = request.at("inject").get<std::vector<std::string>>();
  if (!injected.empty() && !machine.box())
    throw UsageError(expectation("--inject", "simulated cards", "others", "--gpus sim:1x24GiB"));
  if (files_.none() && injected.empty()) return;
  for (const c10::Device device : machine.own)
    devices_.push_back(std::make_unique<OnDevice>(
        device, about_of(device, machine, training),
        trace::RecorderOptions{files_.none() ? kMostEvents : std::uint64_t{0}}));
  std::vector<sim::Injector> all;
  for (const std::string& one : injected) {
    injected_.emplace_back(one, sim::Happened());
    all.push_back(sim::noted(sim::parse_injection(one, lift_), injected_.back().second));
  }
  if (!all.empty())
    injection_ = std::make_unique<sim::InjectionScope>(*machine.box(), sim::any_of(all));
}

TrainingRecord::OnDevice::OnDevice(c10::Device of, trace::About it,
                                   const trace::RecorderOptions& options)
    : device(of),
      about(std::move(it)),
      recorder(options),
      history(std::make_unique<memory::History>(of, recorder)) {}

void TrainingRecord::hear(const train::Event& event) const {
  using Kind = train::Event::Kind;
  if (event.kind == Kind::shrink || event.kind == Kind::technique || event.kind == Kind::device ||
      event.kind == Kind::allocator || event.kind == Kind::thrash)
    lift_.now();
}

void TrainingRecord::know(const recipe::Model& made) {
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) devices_[rank]->know(made, rank);
}

void TrainingRecord::OnDevice::know(const recipe::Model& made, std::size_t rank) {
  using trace::Category;
  const torch::nn::Module& module = made.ranks[rank]->module();
  std::unordered_map<const void*, std::string> modules;  // of each parameter
  for (const auto& parameter : module.named_parameters()) {
    const std::string name = module_of(parameter.key());
    modules[parameter.value().unsafeGetTensorImpl()] = name;
    for (const at::Tensor& part : libtorch::memory_of(parameter.value()))
      know(part, Category::parameter, name);
  }
  for (const auto& buffer : module.named_buffers())
    know(buffer.value(), Category::buffer, module_of(buffer.key()));
  const optim::Optimizer& optimizer = *made.optimizers[rank];
  const std::vector<at::Tensor>& trained = optimizer.parameters();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::string name = modules[trained[i].unsafeGetTensorImpl()];
    know(trained[i].grad(), Category::gradient, name);
    for (const auto& [state, tensor] : optimizer.state(i)) know(tensor, Category::optimizer, name);
  }
}

void TrainingRecord::OnDevice::know(const at::Tensor& tensor, trace::Category category,
                                    const std::string& module) {
  if (!tensor.defined()) return;
  const auto simulated = sim::address_of(tensor);
  known[simulated.value_or(reinterpret_cast<std::uint64_t>(tensor.storage().data()))] = {category,
                                                                                         module};
}

std::vector<trace::Event> TrainingRecord::OnDevice::events(trace::Names& names) const {
  std::vector<trace::Event> all;
  std::unordered_map<std::uint64_t, std::size_t> live;  // by address: the event that allocated
  for (std::uint64_t i = recorder.dropped(); i < recorder.recorded(); ++i) {
    const trace::Event& event = recorder.event(i);
    if (event.kind == trace::Kind::alloc) live[event.address] = all.size();
    if (event.kind == trace::Kind::free_requested) live.erase(event.address);
    all.push_back(event);
  }
  for (const auto& [address, one] : known)
    if (const auto found = live.find(address); found != live.end()) {
      all[found->second].category = one.category;
      if (!one.module.empty()) all[found->second].module = names.number(one.module);
    }
  categorise_by_life(all, names, about);
  return all;
}

std::vector<std::string> TrainingRecord::not_injected() const {
  std::vector<std::string> all;
  for (const auto& [text, happened] : injected_)
    if (!happened.at_all()) all.push_back(text);
  return all;
}

TrainingRecord::Files TrainingRecord::files_of(const OnDevice& one) const {
  if (devices_.size() == 1) return files_;
  return {with_device(files_.trace, one.device), with_device(files_.snapshot, one.device),
          with_device(files_.html, one.device)};
}

void TrainingRecord::write(const std::vector<std::string>& notes, bool survived) {
  for (const auto& one : devices_) {
    if (!one->history) return;
    one->history.reset();
  }
  FirstFailure failure;
  for (const auto& one : devices_) failure.always([&] { write(*one, notes, survived); });
  failure.rethrow();
}

void TrainingRecord::write(OnDevice& one, const std::vector<std::string>& notes,
                           bool survived) const {
  const Files files = files_of(one);
  if (one.device.is_cuda()) one.about.capacity = memory::get_gpu_memory_stats(one.device).total;
  trace::Names names = one.recorder.names();
  const std::vector<trace::Event> all = one.events(names);
  const auto read = [&] { return trace::read_events(all, names, one.about); };
  if (!files.trace.empty()) {
    trace::TraceWriter writer(files.trace, one.about, names);
    for (const trace::Event& event : all) writer.append(event);
    writer.close();
  }
  if (!files.snapshot.empty()) trace::export_snapshot(files.snapshot, *read());
  if (!files.html.empty())
    page::export_page(files.html, *read(), {},
                      {.title = devices_.size() == 1 ? title_ : title_ + ", " + one.device.str(),
                       .notes = notes,
                       .survived = survived});
  tell_of_outputs("train", {files.trace, files.snapshot, files.html});
}

}  // namespace headroom::cli
