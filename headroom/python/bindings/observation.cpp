#include "headroom/dryrun/observation.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headroom/dryrun/module_calls.h"
#include "headroom/python/bindings/engine_module.h"

namespace headroom::python {
namespace {

namespace py = pybind11;
using dryrun::Observation;
using NamedInPython = std::vector<dryrun::Named>;

// The line of the user's own code that runs in this thread: of the innermost frame outside of
// libraries.
class ProgramLines {
 public:
  // shown(file) is the file's name in reports; empty for a library.
  explicit ProgramLines(py::function shown) : shown_(std::move(shown)) {}

  std::string_view here() {
    const py::gil_scoped_acquire interpreter;
    auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (frame) {
      auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
      auto code =
          py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
      if (const std::string& file = name_of(code); !file.empty())
        return text(code.ptr(), file, PyFrame_GetLineNumber(raw));
      frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
    }
    return {};
  }

 private:
  const std::string& name_of(const py::object& code) {
    const auto [found, is_new] = files_.try_emplace(code.ptr());
    if (is_new) {
      kept_.push_back(code);  // so that no other code gets its address
      found->second = shown_(code.attr("co_filename")).cast<std::string>();
    }
    return found->second;
  }
  std::string_view text(PyObject* code, const std::string& file, int line) {
    const auto [found, is_new] = texts_.try_emplace({code, line});
    if (is_new) found->second = file + ":" + std::to_string(line);
    return found->second;
  }

  py::function shown_;
  std::vector<py::object> kept_;
  std::unordered_map<PyObject*, std::string> files_;
  std::map<std::pair<PyObject*, int>, std::string> texts_;
};

}  // namespace

void add_observation(py::module_& module) {
  module.def("enter_module", &dryrun::enter_module);
  module.def("leave_module", &dryrun::leave_module);
  py::class_<Observation>(module, "Observation")
      .def(py::init([](sim::Card& card, py::function shown) {
        auto lines = std::make_shared<ProgramLines>(std::move(shown));
        return std::make_unique<Observation>(card, [lines] { return lines->here(); });
      }))
      .def("know",
           [](Observation& observation, NamedInPython parameters, NamedInPython buffers,
              std::vector<std::string> modules) {
             observation.know({.step = {},
                               .parameters = std::move(parameters),
                               .buffers = std::move(buffers),
                               .modules = std::move(modules)});
           })
      .def("know_gradients",
           [](Observation& observation, const NamedInPython& gradients) {
             observation.know_gradients(gradients);
           })
      .def("know_states", [](Observation& observation,
                             const NamedInPython& states) { observation.know_states(states); })
      .def("begin_step", &Observation::begin_step)
      .def("begin_optimizer", &Observation::begin_optimizer)
      .def("end_optimizer", &Observation::end_optimizer)
      .def("evaluate", &Observation::evaluate)
      .def("end_step", &Observation::end_step)
      .def("end", [](Observation& observation, std::size_t biggest, bool trace) {
        return observation.end({.biggest = biggest, .keep_trace = trace});
      });
}

}  // namespace headroom::python
