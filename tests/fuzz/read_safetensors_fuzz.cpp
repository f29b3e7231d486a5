// The head of safetensors files under libFuzzer, from tests/fuzz/corpus-safetensors. What is not
// InputError is a fault, and so is a tensor that does not lie in the file.
//
// A length that is wrong keeps a fuzzer out of all that follows: bytes that begin with a brace get
// one before them.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/weights/detail/safetensors_header.h"

namespace {

using headroom::weights::detail::read_safetensors_header;
using headroom::weights::detail::StoredTensor;

std::string with_length(std::string_view bytes) {
  const std::size_t end = bytes.rfind('}');
  const std::size_t length = end == std::string_view::npos ? bytes.size() : end + 1;
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xffU);
  return file.append(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // NOLINTNEXTLINE: bytes are chars
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string file = bytes.starts_with('{') ? with_length(bytes) : std::string(bytes);
  try {
    std::uint64_t next = 8;
    for (const StoredTensor& tensor : read_safetensors_header(file, "fuzzed")) {
      if (tensor.begin < next || tensor.end < tensor.begin || tensor.end > file.size())
        std::abort();
      next = tensor.end;
    }
  } catch (const headroom::InputError&) {
  }
  return 0;
}
