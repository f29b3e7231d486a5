#include "headroom/sim/rules/table.h"

#include "headroom/sim/rules/families.h"

namespace headroom::sim::rules {

const Table& table() {
  static const Table& all = *[] {
    auto* made = new Table;
    add_attention(*made);
    add_batch_norm(*made);
    add_convolution(*made);
    add_dropout(*made);
    add_embedding(*made);
    add_indexing(*made);
    add_linear_algebra(*made);
    add_loss(*made);
    add_normalisation(*made);
    add_optimizers(*made);
    add_padding(*made);
    add_pointwise(*made);
    add_pooling(*made);
    return made;
  }();
  return all;
}

}  // namespace headroom::sim::rules
