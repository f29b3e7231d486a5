#include "headroom/python/bindings/errors.h"

#include <pybind11/pybind11.h>

#include "headroom/base/error.h"

namespace headroom::python {
namespace {

void raise(const char* type, const char* text) {
  const auto class_of = pybind11::module_::import("headroom.errors").attr(type);
  PyErr_SetString(class_of.ptr(), text);
}

}  // namespace

void translate_errors() {
  // Derived types before their base.
  pybind11::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const UsageError& error) {
      raise("UsageError", error.what());
    } catch (const InputError& error) {
      raise("InputError", error.what());
    } catch (const UnavailableError& error) {
      raise("UnavailableError", error.what());
    } catch (const WriteError& error) {
      raise("WriteError", error.what());
    } catch (const BusyError& error) {
      raise("BusyError", error.what());
    } catch (const Error& error) {
      raise("Error", error.what());
    }
  });
}

}  // namespace headroom::python
