// Passes documents to Python as text, which Python's own json module parses.
#pragma once

#include <pybind11/pybind11.h>

#include "headroom/base/json.h"

namespace headroom::python {

[[nodiscard]] inline pybind11::object loaded(const Json& document) {
  return pybind11::module_::import("json").attr("loads")(to_line(document));
}

}  // namespace headroom::python
