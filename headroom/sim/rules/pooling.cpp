#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_pooling(Table& table) {
  (void)table;
}

}  // namespace headroom::sim::rules
