// Documents cross into Python as text, and are read there by its own json module.
#pragma once

#include <pybind11/pybind11.h>

#include "headroom/base/json.h"

namespace headroom::python {

[[nodiscard]] inline pybind11::object loaded(const Json& document) {
  return pybind11::module_::import("json").attr("loads")(to_line(document));
}

}  // namespace headroom::python
