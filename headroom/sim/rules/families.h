// The families of rules, one file each, and the table of all their rules.
#pragma once

#include <span>

#include "headroom/sim/rules/table.h"

namespace headroom::sim::rules {

void add_attention(Table& table);
void add_batch_norm(Table& table);
void add_complex(Table& table);
void add_convolution(Table& table);
void add_dropout(Table& table);
void add_elementwise(Table& table);
void add_embedding(Table& table);
void add_fft(Table& table);
void add_half_precision(Table& table);
void add_identity(Table& table);
void add_indexing(Table& table);
void add_loss(Table& table);
void add_matrix_decompositions(Table& table);
void add_matrix_products(Table& table);
void add_normalisation(Table& table);
void add_optimizers(Table& table);
void add_padding(Table& table);
void add_pointwise(Table& table);
void add_pooling(Table& table);
void add_quantise(Table& table);
void add_random(Table& table);
void add_reductions(Table& table);
void add_refused_layouts(Table& table);
void add_rnn(Table& table);
void add_rnn_cells(Table& table);
void add_rnn_layer(Table& table);
void add_sorting(Table& table);
void add_sync_batch_norm(Table& table);

struct Family {
  const char* name;  // its file's, without the ending
  void (*add)(Table&);
};
[[nodiscard]] std::span<const Family> families();

// The rules of all families; made at the first call.
[[nodiscard]] const Table& table();

}  // namespace headroom::sim::rules
