// Reads pickles of protocol 2 to 5 into a tree of plain values, without Python and without running
// code. A pickle is a small program; an operation that does more than make values (calls a
// function, makes an object, loads external data) ends in InputError. A few functions are
// understood as data, because LibTorch's own writer uses them: torch.jit._pickle's restore_type_tag
// and its builders of typed lists, and collections.OrderedDict.
//
//   Tree tree = unpickle(input);  // InputError names the file and the byte
//
// Stops at the pickle's end and ignores the bytes after it.
#pragma once

#include <cstdint>

#include "headroom/trace/detail/pickle_tree.h"
#include "headroom/trace/input.h"

namespace headroom::trace::pickle {

struct Limits {
  // Memory for the values: base_bytes, plus bytes_for_each for every byte of the file read so far.
  // The values of real snapshots take 1 to 4 times the file's size.
  std::uint64_t base_bytes = std::uint64_t{64} << 20;
  std::uint64_t bytes_for_each = 16;
  // The limit for any file size.
  std::uint64_t most_bytes = std::uint64_t{16} << 30;
  // Nesting of open lists, dicts and tuples; real snapshots reach 6.
  std::size_t depth = 1000;
};

[[nodiscard]] Tree unpickle(Input& input, const Limits& limits = {});

}  // namespace headroom::trace::pickle
