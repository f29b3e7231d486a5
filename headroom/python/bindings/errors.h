// Headroom's exceptions in Python: each C++ type is the class of the same name in headroom.errors.
#pragma once

namespace headroom::python {

// Once in each module.
void translate_errors();

}  // namespace headroom::python
