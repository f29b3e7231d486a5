// headroom._engine: simulated cards, dry runs and memory figures for Python's torch. It loads the
// same libheadroom.so as a C++ program.
#include "headroom/python/bindings/engine_module.h"

#include "headroom/python/bindings/errors.h"

namespace headroom::python {

PYBIND11_MODULE(_engine, module) {
  translate_errors();
  add_simulation(module);
  add_dry_run(module);
  add_observation(module);
  add_memory(module);
  add_profile(module);  // before its results are returned
  add_ranks(module);
  add_recipe(module);
  add_spill(module);
}

}  // namespace headroom::python
