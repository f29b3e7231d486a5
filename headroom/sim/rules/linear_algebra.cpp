#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_linear_algebra(Table& table) {
  for (const char* name : {"mm", "mm.out", "addmm", "addmm.out", "addmm_", "_addmm_activation", "bmm",
                           "bmm.out", "baddbmm", "baddbmm.out", "baddbmm_", "addbmm", "addmv",
                           "addmv.out", "addmv_", "dot", "vdot"})
    table.uses_cublas(name);
}

}  // namespace headroom::sim::rules
