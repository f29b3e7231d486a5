// Pickles, protocols 0 to 5, read into a tree of plain values, without Python and without running
// anything: a pickle is a small program, and what it could do besides making values (call
// functions, make objects, ask for data elsewhere) ends in InputError. Three functions are
// understood as data, because LibTorch's own writer uses them: torch.jit._pickle's restore_type_tag
// and its typed lists, and collections.OrderedDict.
//
//   Tree tree = unpickle(input);  // InputError names the file and the byte
//
// Ends at the pickle's end; bytes behind it are not looked at.
#pragma once

#include <cstdint>

#include "headroom/trace/detail/pickle_tree.h"
#include "headroom/trace/input.h"

namespace headroom::trace::pickle {

struct Limits {
  // What the values may take: so much, and so much more for every byte of the file read so far.
  // Real snapshots take 1 to 4 times their size.
  std::uint64_t base_bytes = std::uint64_t{64} << 20;
  std::uint64_t bytes_for_each = 16;
  // Whatever the file's size.
  std::uint64_t most_bytes = std::uint64_t{16} << 30;
  // Open lists, dicts and tuples; real snapshots have 6.
  std::size_t depth = 1000;
};

[[nodiscard]] Tree unpickle(Input& input, const Limits& limits = {});

}  // namespace headroom::trace::pickle
