// Which tensor of a checkpoint belongs to which of a model: names as on the hub, and the liberties
// that checkpoints take with them (modeling_utils.py of transformers 4.57.6).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headroom/models/model.h"

namespace headroom::models::detail {

// What a model's checkpoint has.
struct State {
  // Parameters, and the buffers that are learnt or counted, in the model's order; each once.
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  // Buffers that the config fixes: checkpoints have them or not, nobody reads them.
  std::set<std::string> fixed;
  // Other names that the hub has for a tensor: those of weights that are tied to it.
  std::map<std::string, std::string> aliases;
};

[[nodiscard]] State state_of(Model& model);

// A buffer that checkpoints have: what a batch norm has counted.
[[nodiscard]] bool is_counter(const std::string& name);

struct Match {
  // By the model's name: the index of the checkpoint's name.
  std::map<std::string, std::size_t> found;
  std::vector<std::string> missing;     // the model's, in its order
  std::vector<std::string> unexpected;  // the checkpoint's, in the order given
};

// Base models' files leave out the name of the base (`h.0...` for `transformer.h.0...`), old ones
// say gamma and beta. `source` names the checkpoint in errors. Throws InputError where two of its
// tensors belong to the same one of the model.
[[nodiscard]] Match matched(const std::vector<std::string>& names, const State& state,
                            const std::string& model_type, const std::string& source);

}  // namespace headroom::models::detail
