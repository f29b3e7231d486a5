#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_convolution(Table& table) {
  (void)table;
}

}  // namespace headroom::sim::rules
