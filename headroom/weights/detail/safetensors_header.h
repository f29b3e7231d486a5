// The header of a safetensors file: eight bytes with its length, then JSON with each tensor's name,
// type, shape and position. It does not use LibTorch, so that a fuzzer can build it alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::weights::detail {

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

// Reads the tensors in the order of their bytes, which must follow each other without a gap from
// the end of the header to the end of the file. `source` names the file in errors. Throws
// InputError that names file, tensor and byte of the fault: a length beyond the file, invalid JSON,
// a duplicate key, an unknown type, or positions that overlap, leave gaps or do not fit shape and
// type.
[[nodiscard]] std::vector<StoredTensor> read_safetensors_header(std::string_view file,
                                                                const std::string& source);

}  // namespace headroom::weights::detail
