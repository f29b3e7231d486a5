// `headroom estimate` and `headroom fit` in a world with LibTorch.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {

// A world with the LibTorch that headroom-engine needs.
struct WithEngine : World {
  WithEngine() { set("HEADROOM_TORCH", HEADROOM_TORCH_DIR); }
};

inline Outcome estimate(Arguments arguments, const World& world = WithEngine()) {
  arguments.insert(arguments.begin(), "estimate");
  return world.headroom(arguments);
}

inline Outcome fit(Arguments arguments, const World& world = WithEngine()) {
  arguments.insert(arguments.begin(), "fit");
  return world.headroom(arguments);
}

inline std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

}  // namespace headroom::testing
