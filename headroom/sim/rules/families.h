// The rules by family, one file each; table.cpp puts them together.
#pragma once

#include "headroom/sim/rules/table.h"

namespace headroom::sim::rules {

void add_attention(Table& table);
void add_batch_norm(Table& table);
void add_dropout(Table& table);
void add_embedding(Table& table);
void add_linear_algebra(Table& table);
void add_loss(Table& table);
void add_normalisation(Table& table);
void add_optimizers(Table& table);
void add_padding(Table& table);
void add_pointwise(Table& table);
void add_convolution(Table& table);
void add_pooling(Table& table);
void add_indexing(Table& table);

}  // namespace headroom::sim::rules
