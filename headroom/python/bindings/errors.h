// Headroom's exceptions in Python: each C++ type becomes the class of the same name in
// headroom.errors.
#pragma once

namespace headroom::python {

// Call once in each module.
void translate_errors();

}  // namespace headroom::python
