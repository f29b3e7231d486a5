#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

// CMake writes a line for each file of techniques/.
#define HEADROOM_TECHNIQUE(name) Technique name();
#include "headroom/plan/technique_files.inc"
#undef HEADROOM_TECHNIQUE

const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all{
#define HEADROOM_TECHNIQUE(name) name(),
#include "headroom/plan/technique_files.inc"
#undef HEADROOM_TECHNIQUE
  };
  return all;
}

const std::vector<Rung>& rungs() {
  static const std::vector<Rung> all = [] {
    std::vector<Rung> found;
    for (const Technique& technique : techniques())
      found.insert(found.end(), technique.rungs.begin(), technique.rungs.end());
    std::sort(found.begin(), found.end(),
              [](const Rung& one, const Rung& other) { return one.place < other.place; });
    return found;
  }();
  return all;
}

std::set<std::string> rung_names() {
  std::set<std::string> names;
  for (const Rung& rung : rungs()) names.insert(rung.name);
  return names;
}

std::optional<std::int64_t> number_after_colon(std::string_view value) {
  return to_integer(value.substr(value.find(':') + 1));
}

const Rung& rung_named(std::string_view name) {
  for (const Rung& rung : rungs())
    if (rung.name == name) return rung;
  throw InternalError("rung_named", "no rung is called " + std::string(name));
}

}  // namespace headroom::plan
