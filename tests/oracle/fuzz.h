// Many random streams against PyTorch's allocator, several at a time, with a line of counts for
// each class of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::oracle {

struct FuzzOptions {
  std::uint64_t streams = 20'000;
  std::uint64_t seed = 1;
  std::string class_name;                // empty: all take turns
  std::vector<std::uint64_t> only = {};  // these streams and no others
  int jobs = 2;
  bool minimise = false;    // cut the stream that differs down before printing it
  bool verbose = false;     // a line for each stream
  bool keep_going = false;  // past a stream that differs
};

// Prints; answers whether all streams agreed. Stops at the first that does not, unless told
// otherwise.
bool fuzz(const FuzzOptions& options);

// Plants each kind of difference, and one in each figure, and looks whether it is found.
bool finds_planted_differences(std::uint64_t seed);

}  // namespace headroom::oracle
