// The transformer that several benchmarks train: Llama's layers, of any size.
#pragma once

#include <nlohmann/json.hpp>

#include "headroom/base/json.h"

namespace headroom::bench {

inline Json small_llama(long layers, long width, long length) {
  return {{"model_type", "llama"},
          {"vocab_size", 8192},
          {"hidden_size", width},
          {"intermediate_size", 4 * width},
          {"num_hidden_layers", layers},
          {"num_attention_heads", width / 64},
          {"max_position_embeddings", length}};
}

}  // namespace headroom::bench
