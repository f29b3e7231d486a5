// Where in a program something happened, from the stack that PyTorch recorded: its innermost frame
// that is neither Python nor PyTorch itself, as "file:line", and the operator that it called.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "headroom/trace/detail/snapshot_tree.h"

namespace headroom::trace::pickle {

struct Place {
  Name module = 0;
  Name operation = 0;
};

// A frame that Headroom's own snapshots have in place of a program's: with one of these as its
// file, line 0, and the operator or the path of the module as its name.
inline constexpr std::string_view kOperatorFrame = "operator";
inline constexpr std::string_view kModuleFrame = "module";

class Places {
 public:
  Place of(const SnapshotTree& snapshot, Value frames, Names& names);

 private:
  struct Meaning {
    enum class Kind : std::uint8_t { inner, operation, user, own_operation, own_module } kind;
    Name name = 0;   // of the operation, of the function, of the module
    Name where = 0;  // of the user's: "file:line"
  };
  Meaning meaning(const SnapshotTree& snapshot, Value frame, Names& names);

  // By the dict: frames are shared by many stacks.
  std::unordered_map<std::uint64_t, Meaning> meanings_;
};

}  // namespace headroom::trace::pickle
