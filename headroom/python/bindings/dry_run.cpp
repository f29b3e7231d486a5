#include "headroom/dryrun/dry_run.h"

#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "headroom/dryrun/describe.h"
#include "headroom/estimate/largest.h"
#include "headroom/estimate/profile_training.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/page/page.h"
#include "headroom/python/bindings/engine_module.h"
#include "headroom/python/bindings/json_text.h"
#include "headroom/sim/simulate.h"

namespace headroom::python {
namespace {

namespace py = pybind11;
using dryrun::Named;
using dryrun::Subject;
using trace::Report;
using Facts = std::vector<std::pair<std::string, std::string>>;

// Backward passes of this thread run in it, and not in autograd's own threads. Those may still hold
// Python objects of a pass (its context variables, since torch 2.12) after it has returned, and
// abort the process if the interpreter ends just then.
class BackwardInThisThread {
 public:
  BackwardInThisThread() { state().set_multithreading_enabled(false); }
  ~BackwardInThisThread() { state().set_multithreading_enabled(before_); }
  BackwardInThisThread(const BackwardInThisThread&) = delete;
  BackwardInThisThread& operator=(const BackwardInThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_ = state().get_multithreading_enabled();
};

// Python code throws Python exceptions; this turns torch.OutOfMemoryError into the C++ type that
// the engine catches.
template <typename Run>
auto in_python(Run&& run) {
  const BackwardInThisThread no_other_thread;
  try {
    return run();
  } catch (py::error_already_set& error) {
    const auto out_of_memory = py::module_::import("torch").attr("OutOfMemoryError");
    if (!error.matches(out_of_memory)) throw;
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, error.what());
  }
}

// (step, parameters, buffers, inputs, the optimizer's earlier states)
using SubjectInPython = std::tuple<py::function, std::vector<Named>, std::vector<Named>,
                                   std::vector<at::Tensor>, std::vector<at::Tensor>>;

Subject subject_of(SubjectInPython subject) {
  auto& [step, parameters, buffers, inputs, states] = subject;
  return {.step = [step = std::move(step)] { in_python([&] { step(); }); },
          .parameters = std::move(parameters),
          .buffers = std::move(buffers),
          .inputs = std::move(inputs),
          .states = std::move(states)};
}

// From make(device), which returns the same tuple.
std::function<Subject(c10::Device)> subject_maker(py::function make) {
  return [make = std::move(make)](c10::Device device) {
    return in_python([&] { return subject_of(make(device).cast<SubjectInPython>()); });
  };
}

// From a card's name or size, or from a card's JSON.
gpu::SimulatedCard card_of(const std::string& spec) {
  if (spec.starts_with('{')) return gpu::card_from_json(parse_json(spec, "a card"));
  return dryrun::card_for(spec);
}

dryrun::CardOptions card_options(const std::string& rules,
                                 const std::optional<std::string>& settings,
                                 bool cublas_workspaces) {
  dryrun::CardOptions options{.rules = rules == "cpu" ? sim::Rules::cpu : sim::Rules::cuda,
                              .cublas_workspaces = cublas_workspaces};
  if (settings) options.settings = allocator::parse_settings(*settings);
  return options;
}

Json document(const estimate::Largest& found) {
  Json probes = Json::array();
  for (const estimate::Probe& probe : found.probes)
    probes.push_back({{"size", probe.size},
                      {"fits", probe.fits},
                      {"peak_reserved_bytes", probe.peak_reserved.count}});
  return {{"size", found.size ? Json(*found.size) : Json()},
          {"recommended", found.recommended ? Json(*found.recommended) : Json()},
          {"capped", found.capped},
          {"proven", found.is_proven},
          {"probes", std::move(probes)}};
}

py::object find_largest(const py::function& make_for, std::int64_t at_least,
                        std::optional<std::int64_t> at_most, const estimate::Margin& margin,
                        int steps, const std::string& spec, const dryrun::CardOptions& options) {
  const auto step_of = [&](std::int64_t size) {
    return subject_maker(make_for(size).cast<py::function>());
  };
  const estimate::Bounds bounds{
      .at_least = at_least, .at_most = at_most, .first = std::max<std::int64_t>(at_least, 2)};
  return loaded(
      document(estimate::find_largest(bounds, step_of, card_of(spec), margin, steps, options)));
}

}  // namespace

void add_dry_run(py::module_& module) {
  py::class_<Report>(module, "Report")
      .def("document", [](const Report& report) { return loaded(trace::to_json(report)); })
      .def("describe",
           [](const Report& report, std::size_t modules, std::size_t tensors) {
             return dryrun::describe(report, {.modules = modules, .tensors = tensors});
           })
      .def(
          "write_trace",
          [](Report report, const std::string& path, const Facts& facts,
             const std::optional<std::pair<std::string, std::int64_t>>& limit) {
            if (limit) {  // of a run without one
              report.card = limit->first;
              report.room = Bytes{limit->second};
              report.is_within_room = false;
            }
            trace::write_trace(report, path, {.facts = facts});
          },
          py::arg("path"), py::arg("facts"), py::arg("limit") = py::none())
      .def("page",
           [](const Report& report, const std::string& title, std::vector<std::string> notes,
              const Facts& facts, std::int64_t most_bytes) {
             const auto trace = trace::read_trace(report, {.facts = facts});
             return page::page_of(
                 page::timeline_of(*trace),
                 {.title = title, .notes = std::move(notes), .most_bytes = Bytes{most_bytes}});
           })
      .def("write_page",
           [](const Report& report, const std::string& path, const std::string& title,
              std::vector<std::string> notes, const Facts& facts) {
             const auto trace = trace::read_trace(report, {.facts = facts});
             page::write_page(path, page::timeline_of(*trace),
                              {.title = title, .notes = std::move(notes)});
           })
      .def_property_readonly("has_trace",
                             [](const Report& report) { return report.trace != nullptr; });
  module.def("dry_run_on", [](sim::Card& card, SubjectInPython subject, int steps,
                              std::size_t biggest, bool trace) {
    return dryrun::dry_run(card, subject_of(std::move(subject)),
                           {.steps = steps, .biggest = biggest, .keep_trace = trace});
  });
  module.def("dry_run", [](const std::string& spec, py::function make, int steps,
                           std::size_t biggest, bool trace, const std::string& rules,
                           const std::optional<std::string>& settings, bool cublas_workspaces) {
    return dryrun::dry_run(card_of(spec), subject_maker(std::move(make)),
                           {.steps = steps, .biggest = biggest, .keep_trace = trace},
                           card_options(rules, settings, cublas_workspaces));
  });
  module.def("profile_steps", [](const std::string& spec, py::function make, int steps,
                                 const std::string& rules,
                                 const std::optional<std::string>& settings) {
    estimate::TrainingProfile found = estimate::profile_steps(
        card_of(spec), subject_maker(std::move(make)), steps, card_options(rules, settings, true));
    return py::make_tuple(std::move(found.profile), found.fits);
  });
  module.def("find_largest",
             [](const py::function& make_for, std::int64_t at_least,
                std::optional<std::int64_t> at_most, double margin,
                std::optional<std::int64_t> margin_bytes, int steps, const std::string& spec,
                const std::string& rules, const std::optional<std::string>& settings) {
               estimate::Margin left{.share = margin};
               if (margin_bytes) left.bytes = Bytes(*margin_bytes);
               return find_largest(make_for, at_least, at_most, left, steps, spec,
                                   card_options(rules, settings, true));
             });
}

}  // namespace headroom::python
