// Random streams of operations, all of them legal, the same for the same seed and index. Each has
// settings of its class (settings_dice.h) and a shape of its own: which sizes, how long blocks
// live, how near the card's capacity, which of the rarer operations.
#pragma once

#include <cstdint>
#include <string>

#include "tests/oracle/plain_form.h"
#include "tests/oracle/real_allocator.h"

namespace headroom::oracle {

struct Stream {
  std::string class_name;
  Setup setup;
  PlainStream content;
};

// `class_name` empty: the classes take turns.
[[nodiscard]] Stream make_stream(std::uint64_t seed, std::uint64_t index, std::string class_name);

}  // namespace headroom::oracle
