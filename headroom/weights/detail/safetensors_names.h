// Matches the tensors of a checkpoint to those of a model by their names on the hub, with the
// variants that checkpoints use (modeling_utils.py of transformers).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headroom/models/model.h"

namespace headroom::weights::detail {

// A tensor of a model's checkpoint: a parameter or buffer, or some rows of one. The matrices of
// stacked experts lie one below the other, and have a name each.
struct Place {
  std::string name;
  at::Tensor parameter;
  std::int64_t first = 0, rows = 0;  // no rows: all
  bool transposed = false;           // where it is quantised: a Conv1D's

  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  // The rows in the parameter's memory. Not of a quantised one.
  [[nodiscard]] at::Tensor view() const;
};

// The tensors of a model's checkpoint.
struct State {
  // Parameters and the running statistics of batch norms, in the model's order; each once.
  std::vector<Place> tensors;
  // Buffers that the config determines. Checkpoints may have them; they are not read.
  std::set<std::string> fixed;
  // Other names of a tensor on the hub: those of the weights tied to it.
  std::map<std::string, std::string> aliases;
};

[[nodiscard]] State state_of(models::Model& model);

// True for a buffer that checkpoints have: a running statistic of a batch norm.
[[nodiscard]] bool is_counter(const std::string& name);

struct Match {
  // The index in the checkpoint's names, by the model's name.
  std::map<std::string, std::size_t> found;
  std::vector<std::string> missing;     // the model's, in its order
  std::vector<std::string> unexpected;  // the checkpoint's, in the order given
};

// Accepts names with or without the base model's prefix (`h.0...` for `transformer.h.0...`), and
// the old names gamma and beta. `source` names the checkpoint in errors. Throws InputError if two
// of its tensors match the same tensor of the model.
[[nodiscard]] Match matched(const std::vector<std::string>& names, const State& state,
                            const std::string& model_type, const std::string& source);

}  // namespace headroom::weights::detail
