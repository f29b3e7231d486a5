#include "headroom/sim/simulate.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "headroom/base/error.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/python/bindings/engine_module.h"
#include "headroom/sim/as_cuda.h"
#include "headroom/sim/child.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/tensor.h"

namespace headroom::python {
namespace {

namespace py = pybind11;
using sim::Card;
using sim::Mode;
using sim::Rules;

// A box that can end before Python frees the object.
class Box {
 public:
  explicit Box(sim::Simulation simulation) : simulation_(std::move(simulation)) {}
  [[nodiscard]] sim::Simulation& get() {
    if (!simulation_)
      throw UsageError(expectation("Simulation", "a box that lives", "one that has ended",
                                   "headroom.simulate(...) again"));
    return *simulation_;
  }
  void end() { simulation_.reset(); }
  [[nodiscard]] bool lives() const { return simulation_.has_value(); }

 private:
  std::optional<sim::Simulation> simulation_;
};

Mode mode_of(const std::string& text) {
  if (text == "shape-only") return Mode::shape_only;
  if (text == "compute") return Mode::compute;
  throw UsageError(expectation("simulate", "mode 'shape-only' or 'compute'", text));
}

Rules rules_of(const std::string& text) {
  if (text == "cuda") return Rules::cuda;
  if (text == "cpu") return Rules::cpu;
  throw UsageError(expectation("simulate", "rules 'cuda' or 'cpu'", text));
}

// Like --gpus, and also "unlimited" for one card without a limit, or cards as a list in JSON.
gpu::SimulatedBox box_for(const std::string& spec) {
  if (spec.starts_with('[')) {
    gpu::SimulatedBox box;
    for (const Json& card : parse_json(spec, "cards"))
      box.cards.push_back(gpu::card_from_json(card));
    return box;
  }
  if (spec == "unlimited") return {.cards = {dryrun::card_for(spec)}, .name = {}};
  return gpu::parse_simulated(spec);
}

const char* text_of(Mode mode) {
  return mode == Mode::shape_only ? "shape-only" : "compute";
}
const char* text_of(Rules rules) {
  return rules == Rules::cuda ? "cuda" : "cpu";
}

// For a card whose chip is unknown, an A100's.
std::string capability_of(const Card& card) {
  const gpu::DeviceProfile* const profile = card.options().profile;
  return profile == nullptr || profile->capabilities.empty() ? "8.0" : profile->capabilities[0];
}
int chip(const Card& card, int gpu::DeviceProfile::*member, int of_an_a100) {
  const gpu::DeviceProfile* const profile = card.options().profile;
  return profile == nullptr || profile->*member == 0 ? of_an_a100 : profile->*member;
}

void add_card(py::module_& module) {
  py::class_<Card, std::shared_ptr<Card>>(module, "Card")
      .def_property_readonly("index", &Card::index)
      .def_property_readonly("name", [](const Card& card) { return card.options().name; })
      .def_property_readonly("capacity", [](const Card& card) { return card.capacity().count; })
      .def_property_readonly("free_bytes", [](const Card& card) { return card.free_bytes().count; })
      .def_property_readonly("capability", &capability_of)
      .def_property_readonly(
          "multiprocessors",
          [](const Card& card) { return chip(card, &gpu::DeviceProfile::multiprocessors, 108); })
      .def_property_readonly("threads_of_multiprocessor",
                             [](const Card& card) {
                               return chip(card, &gpu::DeviceProfile::threads_of_multiprocessor,
                                           2048);
                             })
      .def_property_readonly("requests", &Card::requests)
      .def_property_readonly("values_read_as_zero", &Card::values_read_as_zero)
      .def_property_readonly("decided_by_unknown", &Card::decided_by_unknown)
      .def_property(
          "mode", [](const Card& card) { return text_of(card.mode()); },
          [](Card& card, const std::string& text) { card.set_mode(mode_of(text)); })
      .def_property(
          "rules", [](const Card& card) { return text_of(card.rules()); },
          [](Card& card, const std::string& text) { card.set_rules(rules_of(text)); })
      .def_property("assume_true", &Card::assume_true, &Card::set_assume_true)
      .def_property("slow_way", &Card::slow_way, &Card::set_slow_way)
      .def_property("memory_fraction", &Card::memory_fraction, &Card::set_memory_fraction)
      .def("set_used_by_others",
           [](Card& card, std::int64_t bytes) { card.set_used_by_others(Bytes(bytes)); })
      .def("reset_accumulated", &Card::reset_accumulated)
      .def("generator", [](const Card& card) { return card.generator(); });
}

// Injectors, installed on all cards of a box. They count requests, and keep their counts when they
// are installed again beside others.
class Injected {
 public:
  Injected(Box& box, std::vector<sim::Injector> injectors)
      : scope_(
            std::make_unique<sim::InjectionScope>(box.get(), sim::any_of(std::move(injectors)))) {}
  void end() { scope_.reset(); }

 private:
  std::unique_ptr<sim::InjectionScope> scope_;
};

struct Injector {
  sim::Injector injector;
};

// sim::AsCuda, which can end before Python frees the object.
class CudaMeansSim {
 public:
  void end() { as_cuda_.reset(); }

 private:
  std::unique_ptr<sim::AsCuda> as_cuda_ = std::make_unique<sim::AsCuda>();
};

void add_injection(py::module_& module) {
  py::class_<Injector>(module, "Injector").def(py::init([](const std::string& text) {
    return Injector{sim::parse_injection(text)};
  }));
  py::class_<Injected>(module, "Injected")
      .def(py::init([](Box& box, const std::vector<Injector*>& of) {
        std::vector<sim::Injector> injectors;
        for (const Injector* one : of) injectors.push_back(one->injector);
        return std::make_unique<Injected>(box, std::move(injectors));
      }))
      .def("end", &Injected::end);
}

}  // namespace

void add_simulation(py::module_& module) {
  add_card(module);
  py::class_<Box>(module, "Box")
      .def("cards", [](Box& box) { return box.get().cards(); })
      .def("card", [](Box& box, int index) { return box.get().card(index).shared_from_this(); })
      .def("end", &Box::end)
      .def_property_readonly("lives", &Box::lives);
  add_injection(module);
  py::class_<CudaMeansSim>(module, "CudaMeansSim").def(py::init<>()).def("end", &CudaMeansSim::end);
  module.def(
      "simulate",
      [](const std::string& spec, const std::string& mode, const std::string& rules,
         const std::optional<std::string>& settings, bool slow_way, bool cublas_workspaces,
         bool check_streams) {
        sim::SimulationOptions options{.mode = mode_of(mode),
                                       .rules = rules_of(rules),
                                       .slow_way = slow_way,
                                       .cublas_workspaces = cublas_workspaces,
                                       .check_streams = check_streams};
        if (settings) options.settings = allocator::parse_settings(*settings);
        return Box(sim::simulate(box_for(spec), options));
      },
      py::arg("spec"), py::arg("mode"), py::arg("rules"), py::arg("settings"), py::arg("slow_way"),
      py::arg("cublas_workspaces"), py::arg("check_streams"));
  module.def("be_a_child", &sim::be_a_child);
  // Lists all cards in one call: cards appear and disappear only while the GIL is held, so none
  // goes away meanwhile.
  module.def("cards", [] {
    std::vector<std::shared_ptr<Card>> all;
    for (c10::DeviceIndex i = 0; i < sim::card_count(); ++i)
      all.push_back(sim::card_of({c10::DeviceType::PrivateUse1, i}));
    return all;
  });
  module.def(
      "address_of", [](const at::Storage& storage) { return sim::address_of(storage); },
      py::arg("storage"));
  module.attr("most_known") = sim::kMostKnown;
  module.def("knows_values", &sim::knows_values, py::arg("tensor"));
  module.def("forget_values", &sim::forget_values, py::arg("tensor"));
  module.def(
      "resize_storage",
      [](const at::Storage& storage, std::size_t bytes) {
        at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
      },
      py::arg("storage"), py::arg("bytes"));
}

}  // namespace headroom::python
