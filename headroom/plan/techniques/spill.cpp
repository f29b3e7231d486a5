// What is needed later waits on the host, only while memory runs out.
#include "headroom/plan/technique.h"

namespace headroom::plan {

Technique spill() {
  return {.keys = {{"spill",
                    {"auto", "on", "off"},
                    "What is needed later waits on the host when memory runs out in a step. auto: "
                    "where the plan does not fit after all. on: the plan stays as the other keys "
                    "say, and what does not fit waits. off: a step that fails runs again in "
                    "another plan.",
                    // Of when memory runs out: a step with enough of it is the same.
                    [](std::string_view, model::Settings&) {}}}};
}

}  // namespace headroom::plan
