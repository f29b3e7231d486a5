// Parses the JSON of a safetensors header: each tensor's entry, not yet checked for plausibility.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/weights/detail/safetensors_header.h"

namespace headroom::weights::detail {

// A tensor's entry in the header.
struct SafetensorsEntry {
  StoredTensor tensor;      // name and type
  std::uint64_t place = 0;  // byte of the file where its name ends
  std::vector<std::uint64_t> shape, offsets;
  bool has_shape = false, has_offsets = false;
};

// `text` begins at byte `offset` of the file that `source` names. Unknown keys of an entry are
// skipped, as the format's own library does. Throws InputError for invalid JSON, a duplicate key, a
// value of the wrong kind, or an unknown type.
[[nodiscard]] std::vector<SafetensorsEntry> read_safetensors_json(std::string_view text,
                                                                  std::uint64_t offset,
                                                                  const std::string& source);

// A name for error texts: quoted, with special characters escaped.
[[nodiscard]] std::string in_quotes(const std::string& name);

}  // namespace headroom::weights::detail
