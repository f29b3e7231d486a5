#include "headroom/estimate/own_module.h"

#include <torch/nn/module.h>

#include "headroom/base/error.h"
#include "headroom/sim/child.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate::detail {

trace::Report estimate_memory(const UserModule& user_module, std::int64_t rows,
                              const gpu::SimulatedCard& card, const OwnModuleOptions& options) {
  if (rows < 1)
    throw UsageError(expectation("estimate_memory", "at least one row", std::to_string(rows), "1"));
  sim::check_alone("estimate_memory");
  const auto run = [&](const UserModule& of) {
    return dryrun::dry_run(card, copy_on(of, options.optimizer, rows), options.run, options.card);
  };
  if (!sim::needs_child()) return run(user_module);
  // A child process cannot use its parent's GPU, so it gets a copy of the model without data.
  const std::shared_ptr<torch::nn::Module> shapes = shapes_of(user_module);
  return run(
      {.model = shapes.get(), .another = user_module.another, .batch_of = user_module.batch_of});
}

}  // namespace headroom::estimate::detail
