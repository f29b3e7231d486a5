// headroom._core: the core's functions for Python. No LibTorch.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/base/text.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/devices.h"
#include "headroom/gpu/recent_ends.h"
#include "headroom/gpu/sampler.h"
#include "headroom/gpu/wait.h"
#include "headroom/lease/ledger.h"
#include "headroom/oom/classify.h"
#include "headroom/oom/forensics.h"
#include "headroom/python/bindings/errors.h"
#include "headroom/python/bindings/json_text.h"
#include "headroom/watch/gpus_json.h"

namespace headroom::python {
namespace {

namespace py = pybind11;

// The chosen cards, less the memory that leases have reserved.
gpu::Machine narrowed(gpu::Machine machine, const gpu::Devices& devices) {
  return lease::with_promises(
      gpu::narrowed(std::move(machine), devices, gpu::CudaEnvironment::current()),
      lease::contents_now());
}

py::object gpus(const std::string& text) {
  const gpu::Devices devices = gpu::devices_from(text);
  gpu::Machine machine;
  {
    const py::gil_scoped_release others_run;
    gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
    machine = narrowed(sampler.fresh(), devices);
  }
  return loaded(watch::gpus_document(machine, {watch::data_warnings(machine), {}}));
}

struct Wish {
  std::string gpus;
  std::int64_t need = 0;
  int count = 1;
  std::string order;
  double timeout_s = 0, interval_s = 1;
};

Json document(const gpu::WaitResult& result, const gpu::Machine& machine) {
  const gpu::Selection& selection = result.selection;
  const gpu::CudaView cuda = gpu::cuda_view(machine, gpu::CudaEnvironment::current());
  Json picked = Json::array();
  for (const auto& pick : selection.picked) {
    std::optional<int> number;
    for (std::size_t i = 0; i < machine.cards.size(); ++i)
      if (machine.cards[i].uuid == pick.card.uuid) number = gpu::cuda_number(cuda, i);
    picked.push_back({{"index", pick.card.index},
                      {"uuid", to_string(pick.card.uuid)},
                      {"name", pick.card.name},
                      {"usable_bytes", pick.usable.count},
                      {"cuda_index", number ? Json(*number) : Json()}});
  }
  return {{"picked", picked},
          {"sentence", selection.sentence},
          {"cannot_be_met", selection.cannot_be_met},
          {"waited_s", result.waited.count()}};
}

// Calls `progress` with a sentence about once a second; an exception from it ends the wait.
py::object select(const Wish& wish, const std::function<void(const std::string&)>& progress) {
  const gpu::Devices devices = gpu::devices_from(wish.gpus);
  gpu::WaitOptions wait;
  std::stop_source stop;
  std::exception_ptr raised;
  wait.timeout = Seconds(wish.timeout_s);
  wait.interval = Seconds(wish.interval_s);
  wait.cancel = stop.get_token();
  wait.narrow = [&](gpu::Machine machine) { return narrowed(std::move(machine), devices); };
  wait.recent_ends = [](const gpu::Machine& machine) { return gpu::note_processes(machine); };
  wait.progress = [&](const gpu::WaitProgress& now) {
    const py::gil_scoped_acquire ours;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      progress(now.selection.sentence);
    } catch (...) {
      raised = std::current_exception();
      stop.request_stop();
    }
  };
  gpu::WaitResult result;
  gpu::Machine machine;
  {
    const py::gil_scoped_release others_run;
    gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
    result = wait_for_gpu(
        sampler,
        {.need = Bytes(wish.need), .count = wish.count, .order = gpu::parse_order(wish.order)},
        wait);
    machine = sampler.snapshot();
  }
  if (raised) std::rethrow_exception(raised);
  return loaded(document(result, machine));
}

py::object classify(const std::string& text, const std::vector<std::string>& types,
                    std::optional<int> exit_code, std::optional<int> signal) {
  return loaded(oom::document(oom::classify(
      {.text = text, .type_names = types, .exit_code = exit_code, .signal = signal, .host = {}})));
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  translate_errors();
  module.attr("version") = HEADROOM_VERSION;
  module.attr("wanted_torch") = HEADROOM_TORCH;
  module.def("gpus", &gpus, py::arg("gpus") = "");
  module.def(
      "select",
      [](const std::string& gpus, std::int64_t need, int count, const std::string& order,
         double timeout_s, double interval_s,
         const std::function<void(const std::string&)>& progress) {
        return select({gpus, need, count, order, timeout_s, interval_s}, progress);
      },
      py::arg("gpus"), py::arg("need"), py::arg("count"), py::arg("order"), py::arg("timeout_s"),
      py::arg("interval_s"), py::arg("progress"));
  module.def("classify", &classify, py::arg("text"), py::arg("types"), py::arg("exit_code"),
             py::arg("signal"));
  module.def("size_text", [](std::int64_t bytes) { return to_string(Bytes(bytes)); });
  module.def("parse_size", [](const std::string& text) { return parse_bytes(text).count; });
}

}  // namespace headroom::python
