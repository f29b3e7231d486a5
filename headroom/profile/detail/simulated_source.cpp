// Profiles of simulated cards (profiler.h): a recorder of calls, and an observer of each
// card.
#include "headroom/profile/detail/call_recorder.h"
#include "headroom/profile/detail/sources.h"
#include "headroom/sim/simulate.h"

namespace headroom::profile::detail {
namespace {

// Null for a card without name and limit.
const gpu::CatalogueCard* rates_of(const sim::Card& card) {
  if (card.capacity() == allocator::kUnlimited) return gpu::find_card(card.options().name);
  return &gpu::rates_for(card.options().name, card.capacity());
}

std::shared_ptr<sim::Card> card_at(int index) {
  return sim::card_of(
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)));
}

// Passes events to the recorder of one card, and to the observer that was there before.
class CardObserver final : public sim::Observer {
 public:
  CardObserver(std::shared_ptr<sim::Card> card, std::shared_ptr<CallRecorder> recorder)
      : card_(std::move(card)),
        recorder_(std::move(recorder)),
        name_(card_->device().str()),
        before_(card_->observe(this)) {}
  CardObserver(const CardObserver&) = delete;
  CardObserver& operator=(const CardObserver&) = delete;
  ~CardObserver() override { card_->observe(before_); }

  void on_operator(const sim::OperatorCall& call) override {
    recorder_->on_operator(call);
    if (before_ != nullptr) before_->on_operator(call);
  }
  void on_request() override {
    if (before_ != nullptr) before_->on_request();
  }
  void on_assumption(std::string_view what) override {
    if (before_ != nullptr) before_->on_assumption(what);
  }
  void on_event(const allocator::AllocatorEvent& event) override {
    recorder_->on_event(event, name_);
    if (before_ != nullptr) before_->on_event(event);
  }

 private:
  const std::shared_ptr<sim::Card> card_;
  const std::shared_ptr<CallRecorder> recorder_;
  const std::string name_;
  sim::Observer* before_ = nullptr;
};

class SimulatedSource final : public ProfileSource {
 public:
  explicit SimulatedSource(const NamedTensors& tensors)
      : recorder_(std::make_shared<CallRecorder>(tensors, rates_of(*card_at(0)))) {
    for (int i = 0; i < sim::card_count(); ++i)
      observers_.push_back(std::make_unique<CardObserver>(card_at(i), recorder_));
    recorder_->start();
  }
  SimulatedSource(const SimulatedSource&) = delete;
  SimulatedSource& operator=(const SimulatedSource&) = delete;
  ~SimulatedSource() override { stop(); }

  void know(const NamedTensors& tensors) override { recorder_->know(tensors); }
  void begin_step() override { recorder_->begin_step(); }
  Profile end() override {
    stop();
    return recorder_->profile();
  }

 private:
  void stop() {
    observers_.clear();
    recorder_->stop();
  }

  std::shared_ptr<CallRecorder> recorder_;
  std::vector<std::unique_ptr<CardObserver>> observers_;
};

}  // namespace

std::unique_ptr<ProfileSource> start_on_cards(const NamedTensors& tensors) {
  return std::make_unique<SimulatedSource>(tensors);
}

}  // namespace headroom::profile::detail
