// The JSON of a safetensors file's head: what it says of each tensor, not yet whether that can be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/models/detail/safetensors_header.h"

namespace headroom::models::detail {

// A tensor as its entry has it.
struct SafetensorsEntry {
  StoredTensor tensor;      // name and type
  std::uint64_t place = 0;  // in the file, where its name ends
  std::vector<std::uint64_t> shape, offsets;
  bool has_shape = false, has_offsets = false;
};

// `text` begins at byte `offset` of the file that `source` names. Keys of an entry that the format
// does not have are passed over, as its own library does.
// Throws InputError: no JSON, a key twice, a value of another kind, an unknown type.
[[nodiscard]] std::vector<SafetensorsEntry> read_safetensors_json(std::string_view text,
                                                                  std::uint64_t offset,
                                                                  const std::string& source);

// For errors: a name in quotes, whatever is in it.
[[nodiscard]] std::string in_quotes(const std::string& name);

}  // namespace headroom::models::detail
