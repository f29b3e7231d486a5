// AdamW with states in 8 or 4 bit. 8 bit: as bitsandbytes' AdamW8bit; 4 bit: as torchao's
// AdamW4bit.
#include <ATen/ATen.h>

#include "headroom/base/error.h"
#include "headroom/kernels/step.h"
#include "headroom/optim/detail/check.h"
#include "headroom/optim/detail/grouped.h"
#include "headroom/optim/detail/groups.h"
#include "headroom/optim/detail/kernel_lists.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

using at::Tensor;
using detail::Indices;
using detail::Tensors;

constexpr std::int64_t kLeastNumbers = 4096;  // smaller parameters keep float states

class CompactAdamW : public detail::Grouped<CompactAdamWOptions> {
 public:
  explicit CompactAdamW(const std::vector<Group<CompactAdamWOptions>>& groups)
      : Grouped(groups, OptimizerForm::fused), bits_(groups[0].options.bits) {}

  [[nodiscard]] bool takes_scale() const override { return true; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  void step(const Trained& trained, const Indices& of, const CompactAdamWOptions& options,
            const GradientScale& scale) const;

  int bits_;
};

void CompactAdamW::check(const Trained& trained) const {
  detail::check_dense("AdamW in few bits", trained.gradients);
  detail::check_single_precision("AdamW in few bits", trained.parameters);
}

State CompactAdamW::make_state(std::size_t, const Tensor& parameter, const Tensor&) const {
  const at::TensorOptions floats = parameter.options().dtype(at::kFloat).requires_grad(false);
  State state;
  state["step"] = at::zeros({}, floats);
  const std::int64_t count = parameter.numel();
  for (const char* number : {"1", "2"}) {
    Tensor& kept = state[std::string("state") + number];
    if (count < kLeastNumbers) {
      kept = at::zeros_like(parameter, floats);
      continue;
    }
    kept = at::zeros({kernels::code_bytes(count, bits_)}, floats.dtype(at::kByte));
    state[std::string("absmax") + number] = at::zeros({kernels::code_blocks(count, bits_)}, floats);
  }
  return state;
}

void CompactAdamW::update(std::size_t group, Trained& trained, const GradientScale& scale) {
  for (const Indices& indices : detail::by_device_and_type(trained.parameters))
    for (const bool is_small : {false, true}) {
      Indices chosen;
      for (const std::size_t i : indices)
        if ((trained.parameters[i].numel() < kLeastNumbers) == is_small) chosen.push_back(i);
      if (!chosen.empty()) step(trained, chosen, options(group), scale);
    }
}

void CompactAdamW::step(const Trained& trained, const Indices& of,
                        const CompactAdamWOptions& options, const GradientScale& scale) const {
  const GradientScale scale_here = here(trained.parameters[of[0]].device(), scale);
  const auto all = [&](const char* name) { return detail::select(kept(trained, name), of); };
  const Tensors steps = all("step");
  const kernels::StepLists lists = detail::kernel_lists(trained.parameters, trained.gradients, of,
                                                        trained.indices, steps, scale_here);
  const kernels::AdamwRates rates{options.learning_rate, options.beta1, options.beta2,
                                  options.weight_decay, options.epsilon};
  const kernels::Rounding rounding = detail::rounding_of(options.rounding, options.seed);
  at::_foreach_add_(steps, 1);
  if (trained.parameters[of[0]].numel() < kLeastNumbers)
    kernels::adamw_(lists, all("state1"), all("state2"), rates, rounding);
  else
    kernels::compact_adamw_(lists,
                            {bits_, all("state1"), all("state2"), all("absmax1"), all("absmax2")},
                            rates, rounding);
  detail::take_back(steps, scale_here);
}

}  // namespace

std::unique_ptr<Optimizer> make_compact_adamw(std::vector<Tensor> parameters,
                                              const CompactAdamWOptions& options) {
  return make_compact_adamw({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_compact_adamw(
    const std::vector<Group<CompactAdamWOptions>>& groups) {
  constexpr std::string_view kName = "AdamW in few bits";
  if (groups.empty()) throw UsageError(expectation(kName, "a group of parameters", "none"));
  for (const auto& [parameters, options] : groups) {
    if (options.bits != 8 && options.bits != 4)
      throw UsageError(expectation(kName, "states of 8 or 4 bits", std::to_string(options.bits)));
    if (options.bits != groups[0].options.bits)
      throw UsageError(expectation(kName, "the same number of bits in all groups", "8 and 4"));
    detail::check_not_negative(kName, "a learning rate", options.learning_rate);
    detail::check_not_negative(kName, "an epsilon", options.epsilon);
    detail::check_share(kName, "a beta1", options.beta1);
    detail::check_share(kName, "a beta2", options.beta2);
    detail::check_not_negative(kName, "a weight decay", options.weight_decay);
  }
  return std::make_unique<CompactAdamW>(groups);
}

}  // namespace headroom::optim
