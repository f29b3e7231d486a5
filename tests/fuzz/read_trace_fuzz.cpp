// All readers under libFuzzer: `make fuzz-readers`. What is not InputError is a fault.
#include <cstdint>

#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // NOLINTNEXTLINE: bytes are chars
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  headroom::trace::fuzz::read_everything(bytes);
  headroom::trace::fuzz::use_everything(bytes);
  return 0;
}
