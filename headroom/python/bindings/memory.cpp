#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "headroom/memory/clear.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"
#include "headroom/memory/summary.h"
#include "headroom/python/bindings/engine_module.h"
#include "headroom/python/bindings/json_text.h"
#include "headroom/trace/export.h"
#include "headroom/trace/memory_reader.h"

namespace headroom::python {
namespace {

namespace py = pybind11;
using memory::GpuMemoryScope;
using memory::GpuMemoryStats;
using memory::GpuMemoryUse;

py::dict document(const GpuMemoryStats& stats) {
  py::dict out;
  out["allocated"] = stats.allocated.count;
  out["reserved"] = stats.reserved.count;
  out["active"] = stats.active.count;
  out["requested"] = stats.requested.count;
  out["inactive_split"] = stats.inactive_split.count;
  out["max_allocated"] = stats.max_allocated.count;
  out["max_reserved"] = stats.max_reserved.count;
  out["max_active"] = stats.max_active.count;
  out["max_requested"] = stats.max_requested.count;
  out["allocated_in_all"] = stats.allocated_in_all.count;
  out["freed_in_all"] = stats.freed_in_all.count;
  out["allocations"] = stats.allocations;
  out["segments"] = stats.segments;
  out["retries"] = stats.retries;
  out["ooms"] = stats.ooms;
  out["free"] = stats.free ? py::object(py::int_(stats.free->count)) : py::none();
  out["total"] = stats.total ? py::object(py::int_(stats.total->count)) : py::none();
  return out;
}

py::dict document(const GpuMemoryUse& use) {
  py::dict out;
  out["allocated"] = use.allocated.count;
  out["freed"] = use.freed.count;
  out["kept"] = use.kept.count;
  out["peak"] = use.peak.count;
  out["peak_rise"] = use.peak_rise.count;
  out["reserved_kept"] = use.reserved_kept.count;
  out["peak_reserved"] = use.peak_reserved.count;
  return out;
}

py::dict clear(bool force) {
  const memory::Cleared cleared = memory::clear_gpu_memory(force);
  py::list devices, lingering;
  for (const memory::ClearedDevice& one : cleared.devices) {
    py::dict device;
    device["device"] = one.device.str();
    device["reserved_before"] = one.reserved_before.count;
    device["reserved_after"] = one.reserved_after.count;
    device["allocated"] = one.allocated.count;
    devices.append(device);
  }
  for (const memory::LiveAllocation& one : cleared.lingering) lingering.append(to_string(one));
  py::dict out;
  out["devices"] = devices;
  out["lingering"] = lingering;
  out["given_back"] = cleared.given_back().count;
  return out;
}

// Records a device's allocator events until end(), and writes them.
class Recording {
 public:
  explicit Recording(c10::Device device) : history_(std::in_place, device, recorder_) {}
  void end() { history_.reset(); }
  // A snapshot for pytorch.org/memory_viz, or a trace for Perfetto if the name ends in .json.
  void write(const std::string& path) {
    const auto trace = trace::read_memory(recorder_);
    if (path.ends_with(".json"))
      trace::export_chrome(path, *trace);
    else
      trace::export_snapshot(path, *trace);
  }

 private:
  trace::Recorder recorder_;
  std::optional<memory::History> history_;
};

}  // namespace

void add_memory(py::module_& module) {
  module.def("memory_stats", [](const c10::Device& device) {
    return document(memory::get_gpu_memory_stats(device));
  });
  module.def("reset_peak_memory_stats", &memory::reset_peak_memory_stats);
  module.def("memory_line", [](const std::string& prefix, const c10::Device& device) {
    return memory::log_gpu_memory_stats(prefix, device);
  });
  module.def("memory_summary", &memory::memory_summary);
  module.def("short_memory_summary", &memory::short_memory_summary);
  module.def("clear_memory", &clear);
  py::class_<GpuMemoryScope>(module, "GpuMemoryScope")
      .def(py::init<c10::Device>())
      .def("use", [](const GpuMemoryScope& scope) { return document(scope.use()); })
      .def("line", [](const GpuMemoryScope& scope, const std::string& name) {
        return to_string(scope.use(), name);
      });
  py::class_<memory::CountCpuMemory>(module, "CountCpuMemory").def(py::init<>());
  py::class_<Recording>(module, "Recording")
      .def(py::init<c10::Device>())
      .def("end", &Recording::end)
      .def("write", &Recording::write);
}

}  // namespace headroom::python
