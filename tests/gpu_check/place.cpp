#include "tests/gpu_check/place.h"

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/cuda/load.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/nvml.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/sampler.h"
#include "headroom/machine/cards_to_fill.h"

namespace headroom::gpu_check {

Place::Place(const std::string& text) : text_(text) {
  const std::string_view view = text_;
  if (view.starts_with("sim:")) {
    simulated_ = dryrun::card_for(view.substr(4));
    return;
  }
  const auto number = view.starts_with("cuda:") ? to_integer(view.substr(5)) : std::nullopt;
  if (!number || *number < 0 || *number > 127)
    throw UsageError(expectation("--gpu", "cuda:N or a simulated card", text, "cuda:0, sim:24GiB"));
  index_ = static_cast<int>(*number);
}

gpu::SimulatedCard Place::described() const {
  if (simulated_) return *simulated_;
  const auto card = of_driver();
  if (!card || !card->memory)
    throw NoCardError("gpu_check", "NVML does not show the memory of " + text_);
  const gpu::DeviceProfile* const profile = machine::profile_of(*card);
  return {.name = card->name,
          .total = card->memory->total,
          .reserved = card->memory->reserved.value_or(Bytes{}),
          .profile = profile != nullptr ? profile->key : ""};
}

std::optional<gpu::Card> Place::of_driver() const {
  if (simulated_) return {};
  const gpu::Machine machine = machine_now();
  const auto order = gpu::cuda_view(machine, gpu::CudaEnvironment::current()).cards;
  if (static_cast<std::size_t>(index_) >= order.size()) return {};
  return machine.cards[order[static_cast<std::size_t>(index_)]];
}

std::vector<c10::Device> Place::open_up_to(int count) {
  std::vector<c10::Device> all;
  if (simulated_) {
    if (!box_)
      box_ = sim::simulate(
          gpu::SimulatedBox{.cards = std::vector(static_cast<std::size_t>(count), *simulated_),
                            .name = {}},
          {.mode = sim::Mode::compute, .check_streams = true});
    for (int i = 0; i < std::min(count, box_->cards()); ++i) all.push_back(box_->device(i));
    return all;
  }
  const int cards = load_cuda().device_count();
  if (cards == 0) throw NoCardError("gpu_check", cuda_functions().why_absent());
  if (index_ >= cards)
    throw NoCardError("gpu_check",
                      "CUDA has " + std::to_string(cards) + " cards here, not " + text_);
  for (int i = index_; i < std::min(cards, index_ + count); ++i)
    all.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
  return all;
}

c10::Device Place::open() {
  return open_up_to(1).front();
}

void Place::limit(std::optional<Bytes> most, int after) {
  // The allocator computes the limit as share times total: half a segment more is never rounded
  // down to less, and lets no further segment in.
  constexpr double kHalfASegment = 1 << 20;
  const auto share = [&](Bytes total) {
    if (!most) return 1.0;
    const auto bytes = static_cast<double>(most->count) + kHalfASegment;
    return std::min(1.0, bytes / static_cast<double>(total.count));
  };
  const int card = index_ + after;
  if (box_)
    box_->card(after).set_memory_fraction(share(box_->card(after).capacity()));
  else
    cuda_functions().set_memory_fraction(card, share(cuda_functions().memory_info(card).second));
}

gpu::Machine machine_now() {
  gpu::Sampler sampler(gpu::make_nvml_source(), {.keep_sampling = false});
  return sampler.fresh();
}

}  // namespace headroom::gpu_check
