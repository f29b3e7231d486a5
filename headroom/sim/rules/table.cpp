#include "headroom/sim/rules/table.h"

#include "headroom/sim/rules/families.h"

namespace headroom::sim::rules {
namespace {

constexpr Family kFamilies[] = {
    {"attention", add_attention},
    {"batch_norm", add_batch_norm},
    {"complex", add_complex},
    {"convolution", add_convolution},
    {"dropout", add_dropout},
    {"elementwise", add_elementwise},
    {"embedding", add_embedding},
    {"fft", add_fft},
    {"half_precision", add_half_precision},
    {"identity", add_identity},
    {"indexing", add_indexing},
    {"layouts", add_layouts},
    {"linalg", add_linalg},
    {"linear_algebra", add_linear_algebra},
    {"loss", add_loss},
    {"normalisation", add_normalisation},
    {"optimizers", add_optimizers},
    {"padding", add_padding},
    {"pointwise", add_pointwise},
    {"pooling", add_pooling},
    {"quantise", add_quantise},
    {"random", add_random},
    {"reductions", add_reductions},
    {"rnn", add_rnn},
    {"sorting", add_sorting},
    {"sync_batch_norm", add_sync_batch_norm},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Table& table() {
  static const Table& all = *[] {
    auto* made = new Table;
    for (const Family& family : families()) family.add(*made);
    return made;
  }();
  return all;
}

}  // namespace headroom::sim::rules
