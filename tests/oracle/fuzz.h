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
  bool asking = false;      // the real allocator asks before it refuses
};

// So much of a run may be left out; more would say that the streams are not the right ones. It
// holds where all classes take turns and the run is long enough that chance does not decide.
inline constexpr double kMostLeftOut = 0.005;
inline constexpr std::uint64_t kStreamsForLimit = 1000;

// Prints. Answers whether something was compared, all of it agreed, and little enough was left out.
// Stops at the first stream that differs, unless told otherwise.
bool fuzz(const FuzzOptions& options);

// Plants each kind of difference, and one in each figure, and looks whether it is found.
bool finds_planted_differences(std::uint64_t seed);

}  // namespace headroom::oracle
