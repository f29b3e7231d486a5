// The head of a safetensors file: eight bytes with its length, then JSON that names each tensor,
// its type, shape and place. Nothing of LibTorch, so that a fuzzer can have it alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::models::detail {

// A type of the format, "F32", "BF16", ...
struct StoredType {
  std::string_view name;
  std::uint64_t bits;
};

struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the file
};

// Its tensors, in the order in which their bytes lie: they follow each other without a gap from the
// end of the head to the end of the file.
// `source` names it in errors. Throws InputError naming it, the tensor and the byte where something
// is wrong: a length beyond the file, no JSON, a key twice, an unknown type, places that overlap,
// leave holes or do not fit shape and type.
[[nodiscard]] std::vector<StoredTensor> read_safetensors_header(std::string_view file,
                                                                const std::string& source);

}  // namespace headroom::models::detail
