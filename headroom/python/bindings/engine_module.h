// The parts of headroom._engine.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace headroom::python {

void add_simulation(pybind11::module_& module);
void add_dry_run(pybind11::module_& module);
void add_observation(pybind11::module_& module);
void add_memory(pybind11::module_& module);
void add_profile(pybind11::module_& module);
void add_recipe(pybind11::module_& module);
void add_ranks(pybind11::module_& module);
void add_spill(pybind11::module_& module);

}  // namespace headroom::python
