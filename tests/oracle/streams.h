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

// The class of a stream: the wanted one, or, where that is empty, each in turn.
[[nodiscard]] std::string class_of(std::uint64_t index, const std::string& wanted);

// `class_name` as the wanted one of class_of().
[[nodiscard]] Stream make_stream(std::uint64_t seed, std::uint64_t index,
                                 const std::string& class_name);

}  // namespace headroom::oracle
