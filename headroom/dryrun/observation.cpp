#include "headroom/dryrun/observation.h"

#include "headroom/dryrun/detail/allocation_ledger.h"

namespace headroom::dryrun {

struct Observation::State {
  State(sim::Card& watched, std::function<std::string_view()> line)
      : card(watched.shared_from_this()), ledger(watched, std::move(line)) {}

  std::shared_ptr<sim::Card> card;
  detail::Ledger ledger;
  sim::Observer* before = nullptr;
  bool watches = true;
  std::uint64_t values_before = card->values_read_as_zero();
  std::uint64_t decided_before = card->decided_by_unknown();
};

Observation::Observation(sim::Card& card, std::function<std::string_view()> line)
    : state_(std::make_unique<State>(card, std::move(line))) {
  state_->before = card.observe(&state_->ledger);
}

Observation::~Observation() {
  if (state_->watches) state_->card->observe(state_->before);
}

void Observation::know(const Subject& subject) {
  state_->ledger.know(subject);
}
void Observation::know_gradients(const std::vector<Named>& gradients) {
  state_->ledger.know_gradients(gradients);
}
void Observation::begin_step(std::uint32_t step) {
  state_->ledger.begin_step(step);
}
void Observation::know_states(const std::vector<Named>& states) {
  state_->ledger.know_states(states);
}
void Observation::begin_optimizer() {
  state_->ledger.begin_optimizer();
}
void Observation::end_optimizer() {
  state_->ledger.end_optimizer();
}
void Observation::evaluate(bool evaluates) {
  state_->ledger.evaluate(evaluates);
}
void Observation::end_step() {
  state_->ledger.end_step();
}

trace::Report Observation::end(const Options& options) {
  sim::Card& card = *state_->card;
  card.observe(state_->before);
  state_->watches = false;
  trace::Report report = state_->ledger.settle(options);
  report.took_s = state_->ledger.seconds();
  report.out_of_memory = card.last_out_of_memory();
  report.values_read_as_zero = card.values_read_as_zero() - state_->values_before;
  report.decided_by_unknown = card.decided_by_unknown() - state_->decided_before;
  return report;
}

}  // namespace headroom::dryrun
