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
    {"loss", add_loss},
    {"matrix_decompositions", add_matrix_decompositions},
    {"matrix_products", add_matrix_products},
    {"normalisation", add_normalisation},
    {"optimizers", add_optimizers},
    {"padding", add_padding},
    {"pointwise", add_pointwise},
    {"pooling", add_pooling},
    {"quantise", add_quantise},
    {"random", add_random},
    {"reductions", add_reductions},
    {"refused_layouts", add_refused_layouts},
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
