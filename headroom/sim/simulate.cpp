#include "headroom/sim/simulate.h"

#include <mutex>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/stream_order.h"
#include "headroom/sim/dispatch/backend.h"
#include "headroom/sim/shared_box.h"

namespace headroom::sim {
namespace {

// Its capacity is what CUDA reports as the card's total; a process's context is taken off it from
// the start.
std::shared_ptr<Card> make_card(int index, const gpu::SimulatedCard& spec,
                                const SimulationOptions& options,
                                const std::shared_ptr<SharedBox>& box,
                                const std::shared_ptr<detail::StreamOrder>& order) {
  const gpu::DeviceProfile* profile = gpu::find_profile(spec.profile);
  CardOptions card;
  card.index = index;
  card.name = spec.name;
  card.capacity = spec.total - spec.reserved;
  if (profile != nullptr && profile->context) card.context = *profile->context;
  card.mode = options.mode;
  card.rules = options.rules;
  card.settings = *options.settings;
  card.profile = profile;
  card.slow_way = options.slow_way;
  card.cublas_workspaces = options.cublas_workspaces;
  card.box = box;
  card.stream_order = order;
  return std::make_shared<Card>(std::move(card));
}

allocator::Settings settings_of_environment() {
  const auto now = allocator::effective_settings(
      [](const std::string& name) { return environment(name.c_str()); });
  if (!now.caching)
    throw UsageError(expectation("simulate", "a caching allocator, which simulated cards have",
                                 "PYTORCH_NO_CUDA_MEMORY_CACHING", "unset it"));
  return now.settings;
}

}  // namespace

struct Simulation::Box {
  explicit Box(std::vector<std::shared_ptr<Card>> of) : cards(std::move(of)) {
    detail::install_cards(cards);
  }
  ~Box() {
    detail::remove_cards();
    for (const auto& card : cards) card->leave_box();
  }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  std::vector<std::shared_ptr<Card>> cards;
};

Simulation::Simulation(std::unique_ptr<Box> box) : box_(std::move(box)) {}
Simulation::Simulation(Simulation&&) noexcept = default;
Simulation& Simulation::operator=(Simulation&&) noexcept = default;
Simulation::~Simulation() = default;

int Simulation::cards() const {
  return box_ == nullptr ? 0 : static_cast<int>(box_->cards.size());
}

Card& Simulation::card(int index) const {
  return detail::named_card(index);
}

c10::Device Simulation::device(int index) const {
  return card(index).device();
}

Simulation simulate(const gpu::SimulatedBox& box, const SimulationOptions& options) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(
      one_at_a_time);  // a second box is refused before it joins a shared one
  if (std::ssize(box.cards) > gpu::kMostSimulatedCards)
    throw UsageError(expectation(
        "simulate",
        "at most " + std::to_string(gpu::kMostSimulatedCards) + " simulated cards in a process",
        std::to_string(box.cards.size())));
  check_alone("simulate");
  SimulationOptions resolved = options;
  if (!resolved.settings) resolved.settings = settings_of_environment();
  detail::load_backend();
  const auto shared = box.name.empty() ? nullptr : std::make_shared<SharedBox>(box);
  const auto order = options.check_streams
                         ? std::make_shared<detail::StreamOrder>(static_cast<int>(box.cards.size()))
                         : nullptr;
  std::vector<std::shared_ptr<Card>> cards;
  for (const gpu::SimulatedCard& spec : box.cards)
    cards.push_back(make_card(static_cast<int>(cards.size()), spec, resolved, shared, order));
  return Simulation(std::make_unique<Simulation::Box>(std::move(cards)));
}

Simulation simulate(std::string_view spec, const SimulationOptions& options) {
  return simulate(gpu::parse_simulated(spec), options);
}

int card_count() noexcept {
  return detail::card_count();
}

void check_alone(std::string_view function) {
  if (detail::card_count() > 0)
    throw UsageError(expectation(function, "one box of simulated cards at a time",
                                 "a second one while the first exists",
                                 "ending the first Simulation first, or dryrun::dry_run and "
                                 "find_max_batch_size on a device of it"));
}

std::shared_ptr<Card> card_of(c10::Device device) {
  if (device.type() != c10::DeviceType::PrivateUse1)
    throw UsageError(expectation("card_of", "a simulated device such as sim:0", device.str(), ""));
  const int index = device.index() < 0 ? detail::current_card() : device.index();
  return detail::named_card(index).shared_from_this();
}

}  // namespace headroom::sim
