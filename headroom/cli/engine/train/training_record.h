// Serves --trace, --snapshot, --html and --inject of a training: a record of its devices' memory,
// and disturbances. Of several devices each has files of its own: run.html is run.sim0.html, ...
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/engine/train/training_machine.h"
#include "headroom/memory/history.h"
#include "headroom/recipe/recipe.h"
#include "headroom/sim/injection.h"
#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"
#include "headroom/train/event.h"

namespace headroom::cli {

class TrainingRecord {
 public:
  // Records from now on. Throws UsageError for disturbances of cards that are not simulated.
  TrainingRecord(const Json& request, const TrainingMachine& machine,
                 const config::Training& training);

  // A lasting refusal ends when the plan has become smaller.
  void hear(const train::Event& event) const;
  [[nodiscard]] bool disturbs() const { return injection_ != nullptr; }
  // Notes which of the tensors that live now are parameters, buffers, gradients and optimizer
  // states, and of which modules; before write().
  void know(const recipe::Model& made);
  // Writes the files that were asked for; `notes` are sentences for the page, which says of refused
  // requests that the run `survived` them. Once; later calls do nothing. Throws WriteError.
  void write(const std::vector<std::string>& notes, bool survived = false);
  // The disturbances that were asked for and have not happened.
  [[nodiscard]] std::vector<std::string> not_injected() const;

 private:
  struct Known {
    trace::Category category = trace::Category::unknown;
    std::string module;
  };
  struct OnDevice {
    c10::Device device;
    trace::About about;
    trace::Recorder recorder;
    std::unique_ptr<memory::History> history = {};
    std::unordered_map<std::uint64_t, Known> known = {};  // by address

    OnDevice(c10::Device of, trace::About it, const trace::RecorderOptions& options);
    void know(const recipe::Model& made, std::size_t rank);
    void know(const at::Tensor& tensor, trace::Category category, const std::string& module);
    // The recorded events, with the categories and modules that are known.
    [[nodiscard]] std::vector<trace::Event> events(trace::Names& names) const;
  };
  struct Files {
    std::string trace, snapshot, html;
    [[nodiscard]] bool none() const { return trace.empty() && snapshot.empty() && html.empty(); }
  };
  [[nodiscard]] Files files_of(const OnDevice& one) const;
  void write(OnDevice& one, const std::vector<std::string>& notes, bool survived) const;

  Files files_;  // as they were asked for
  std::string title_;
  sim::Lift lift_;
  std::vector<std::unique_ptr<OnDevice>> devices_;  // by rank; none: nothing is recorded
  std::vector<std::pair<std::string, sim::Happened>> injected_;
  std::unique_ptr<sim::InjectionScope> injection_;
};

}  // namespace headroom::cli
