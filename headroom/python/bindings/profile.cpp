#include <pybind11/stl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <nlohmann/json.hpp>

#include "headroom/profile/profiler.h"
#include "headroom/python/bindings/engine_module.h"
#include "headroom/python/bindings/json_text.h"

namespace headroom::python {
namespace {

namespace py = pybind11;
using profile::ModuleRange;
using profile::Profile;
using profile::Profiler;
using profile::ProfileView;

ProfileView view_of(const std::string& sort_by, std::size_t row_limit,
                    const std::string& group_by) {
  return {.sort_by = sort_by, .row_limit = row_limit, .group_by = profile::group_named(group_by)};
}

}  // namespace

void add_profile(py::module_& module) {
  py::class_<Profile>(module, "Profile")
      .def("document",
           [](const Profile& profile, const std::string& sort_by, std::size_t row_limit,
              const std::string& group_by) {
             return loaded(profile::to_json(profile, view_of(sort_by, row_limit, group_by)));
           })
      .def("table",
           [](const Profile& profile, const std::string& sort_by, std::size_t row_limit,
              const std::string& group_by, std::size_t width) {
             return profile::table(profile, view_of(sort_by, row_limit, group_by), width);
           })
      .def("write_chrome", &profile::write_chrome)
      .def_readonly("simulated_time", &Profile::simulated_time);
  py::class_<Profiler>(module, "Profiler")
      .def(py::init<profile::NamedTensors>())
      .def("know", &Profiler::know)
      .def("begin_step", &Profiler::begin_step)
      .def("end", &Profiler::end, py::call_guard<py::gil_scoped_release>());
  py::class_<ModuleRange>(module, "ModuleRange")
      .def(py::init<std::string>())
      .def("end", &ModuleRange::end);
  module.def("read_profile", [](const torch::autograd::profiler::ProfilerResult& result) {
    return profile::read_profile(result);
  });
}

}  // namespace headroom::python
