// Prints the table of docs/guides/saved-activations.md: what one training step of GPT-2 keeps and
// needs on a simulated card, by where its saved tensors wait.
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "headroom/libtorch/on.h"
#include "headroom/models/batch.h"
#include "headroom/models/model.h"
#include "headroom/nn/offload.h"
#include "headroom/sim/simulate.h"

namespace headroom {
namespace {

using nn::Recompute;
using torch::Tensor;

struct Way {
  std::string name;
  Recompute how = Recompute::none;
  bool offload = false;
};

void print(const Way& way, Bytes kept, Bytes peak, Bytes host) {
  const auto mib = [](Bytes bytes) { return std::llround(bytes.mib()); };
  std::cout << std::left << std::setw(26) << way.name << std::right << std::setw(8) << mib(kept)
            << std::setw(8) << mib(peak) << std::setw(8) << mib(host) << "\n";
}

void run(const sim::Simulation& box, models::Model& model, const models::Batch& batch,
         const Way& way) {
  const auto allocated = [&] { return box.card(0).statistics().allocated_bytes.all; };
  const auto parameters = model.module().parameters();
  model.set_checkpointing({.how = way.how});
  nn::Offload offload(parameters);
  const std::int64_t before = allocated().current;
  box.card(0).reset_peaks();
  std::function<Tensor()> forward = [&] { return model.run(batch).loss; };
  if (way.offload)
    forward = [&, inside = forward] {
      const auto scope = offload.scope();
      return inside();
    };
  const Tensor loss = forward();
  const std::int64_t kept = allocated().current - before;
  loss.backward();
  print(way, Bytes{kept}, Bytes{allocated().peak - before}, offload.use().peak_waiting);
  for (Tensor parameter : parameters) parameter.mutable_grad().reset();
}

void print_table() {
  const sim::Simulation box = sim::simulate("1x80GiB");
  const auto model = libtorch::on(box.device(0), [] {
    const Json file = {{"model_type", "gpt2"}};
    return models::build(model::ModelConfig(file, "gpt2"), {.loss_chunk = 256});
  });
  model->train();
  const auto batch = models::empty_batch(*model, {.rows = 2, .length = 1024}, box.device(0));
  std::cout << std::left << std::setw(26) << "MiB" << std::right << std::setw(8) << "kept"
            << std::setw(8) << "peak" << std::setw(8) << "host\n";
  for (const Way& way :
       std::vector<Way>{{"nothing"},
                        {"checkpointing", Recompute::nonreentrant},
                        {"checkpointing and offload", Recompute::nonreentrant, true},
                        {"offload", Recompute::none, true}})
    run(box, *model, batch, way);
}

}  // namespace
}  // namespace headroom

int main() {
  headroom::print_table();
}
