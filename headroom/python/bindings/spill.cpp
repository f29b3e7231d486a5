#include "headroom/memory/spill.h"

#include <ATen/core/grad_mode.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "headroom/libtorch/sleeper.h"
#include "headroom/memory/rescue.h"
#include "headroom/python/bindings/engine_module.h"

namespace headroom::python {
namespace {

namespace py = pybind11;

// What a saved-tensor hook of Python's keeps in place of the tensor.
struct Packed {
  libtorch::Unpack unpack;
};

// A weight stays as it is, because its module holds it anyway, and so does a tensor of a subclass.
// Only a result must lose its graph, which holds what saved it.
py::object pack(memory::Spill& spill, const py::handle& object) {
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  if (tensor.is_cpu() || (tensor.is_leaf() && tensor.requires_grad()))
    return py::reinterpret_borrow<py::object>(object);
  libtorch::Unpack unpack;
  {
    const py::gil_scoped_release others_may_run;
    const at::NoGradGuard no_graph;
    unpack = spill.pack(tensor);
  }
  if (unpack) return py::cast(Packed{std::move(unpack)});
  return tensor.requires_grad() ? object.attr("detach")()
                                : py::reinterpret_borrow<py::object>(object);
}

at::Tensor unpack(const Packed& packed) {
  const py::gil_scoped_release others_may_run;
  const at::NoGradGuard no_graph;
  return packed.unpack();
}

py::dict figures(const memory::Spill& spill) {
  const memory::SpillUse use = spill.use();
  py::dict out;
  out["saved"] = use.saved;
  out["refused"] = use.refused;
  out["rescued"] = use.rescued;
  out["moved_bytes"] = use.moved.count;
  out["waiting_bytes"] = use.waiting.count;
  out["peak_waiting_bytes"] = use.peak_waiting.count;
  out["refused_in_step"] = use.refused_in_step;
  out["moved_in_step_bytes"] = use.moved_in_step.count;
  out["needed_bytes"] = use.needed.count;
  out["seconds"] = use.seconds;
  out["text"] = to_string(use);
  return out;
}

}  // namespace

void add_spill(py::module_& module) {
  using memory::Spill;
  const py::call_guard<py::gil_scoped_release> others_may_run;
  py::class_<Packed>(module, "Packed");
  py::class_<Spill>(module, "Spill")
      .def(py::init([](std::optional<std::int64_t> host_memory, int sharers) {
        memory::SpillOptions options;
        options.sharers = sharers;
        options.starts_cuda = false;  // a fork of a process in which CUDA has started cannot use it
        if (host_memory) options.host_memory = Bytes{*host_memory};
        return std::make_unique<Spill>(options);
      }))
      .def("pack", &pack)
      .def("set_idle", &Spill::set_idle, others_may_run)
      .def("want", &Spill::want, others_may_run)
      .def("end_step", &Spill::end_step, others_may_run)
      .def("figures", &figures);
  module.def("unpack_spilled", &unpack);
  module.def("rescue_on_cuda", &memory::rescue_on_cuda);
  module.def("want_idle", [](const at::Tensor& tensor) {
    if (!libtorch::sleeps(tensor)) return;
    const py::gil_scoped_release released;
    libtorch::wake(tensor);
  });
}

}  // namespace headroom::python
