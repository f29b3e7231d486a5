#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "headroom/parallel/pretended_ranks.h"
#include "headroom/parallel/sim_backend.h"
#include "headroom/python/bindings/engine_module.h"

namespace headroom::python {

namespace py = pybind11;

void add_ranks(py::module_& module) {
  module.def("sim_backend", &parallel::sim_backend, py::arg("host"));
  module.def("pretended_ranks", &parallel::pretended_ranks, py::arg("rank"), py::arg("size"));
}

}  // namespace headroom::python
