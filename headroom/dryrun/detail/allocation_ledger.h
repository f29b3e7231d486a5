// Records every allocation of a dry run, with its operator, module, step and phase, and finds the
// peak. The category of an allocation is often known only later (a forward tensor is an activation
// if it is alive in backward), so categories are settled at the end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headroom/dryrun/attribution.h"
#include "headroom/dryrun/subject.h"
#include "headroom/sim/card.h"
#include "headroom/trace/report.h"

namespace headroom::dryrun::detail {

inline constexpr std::uint32_t kLivesOn = ~std::uint32_t{0};

struct Allocation {
  std::uint32_t event = 0;        // number of the event that made it
  std::uint32_t died = kLivesOn;  // number of the event that freed it
  trace::Event made;              // address, bytes, module, operation, line, step, phase
  Bytes block;                    // size of its block
  trace::Phase phase_died = trace::Phase::unknown;
  std::uint32_t step_died = 0;  // 0: still alive
  bool was_there = false;       // made before the first step
};

// The line of the program that runs in this thread. The text lives as long as the function.
using ProgramLine = std::function<std::string_view()>;

class Ledger final : public sim::Observer {
 public:
  Ledger(sim::Card& card, const Subject& subject);
  // For a whole program; everything before the first step is phase `init`.
  Ledger(sim::Card& card, ProgramLine line);

  // A model that appeared, or moved.
  void know(const Subject& subject);
  void know_gradients(const std::vector<Named>& gradients);
  // An optimizer's state, by the name of its parameter, unless it is known as something else.
  void know_states(const std::vector<Named>& states);
  void begin_optimizer() { attribution_.begin_optimizer(); }
  void end_optimizer() { attribution_.end_optimizer(); }
  void evaluate(bool evaluates) { attribution_.evaluate(evaluates); }
  void begin_step(std::uint32_t step);
  void end_step();

  // Since the first event.
  [[nodiscard]] double seconds() const;
  // True if the card was used since this ledger was made.
  [[nodiscard]] bool touched() const { return touched_; }

  void on_operator(const sim::OperatorCall& call) override;
  void on_request() override;
  void on_assumption(std::string_view what) override;
  void on_event(const allocator::AllocatorEvent& allocator_event) override;

  // Everything except `took_s`, `out_of_memory` and the counts of unknown values.
  [[nodiscard]] trace::Report settle(const Options& options);

 private:
  void take_what_is_there();
  trace::Name owner(const std::string& tensor);  // the module of a parameter or buffer
  void mark(const Subject& subject);
  void mark(const at::Tensor& tensor, trace::Category category, trace::Name module = 0,
            bool may_be_known = true);
  void mark_gradients();
  void add(const allocator::AllocatorEvent& allocator_event, trace::Event event);
  void remove(std::uint64_t address, const trace::Event& event);
  void settle_categories();
  [[nodiscard]] static trace::Category category_of(const Allocation& allocation);
  [[nodiscard]] bool lives_at_peak(const Allocation& allocation) const;
  [[nodiscard]] trace::Parts parts_at_peak() const;
  [[nodiscard]] std::vector<trace::ModulePeak> peaks_of_modules() const;
  [[nodiscard]] std::vector<trace::LiveTensor> biggest_at_peak(std::size_t count) const;
  void add_lines_and_phases(trace::Report& report) const;

  sim::Card& card_;
  std::shared_ptr<trace::Trace> trace_ = std::make_shared<trace::Trace>();
  Attribution attribution_;
  const ProgramLine line_;
  std::atomic<bool> touched_{false};
  std::mutex mutex_;  // guards the members below: gradients are marked outside the card's lock
  std::vector<Allocation> allocations_;
  std::unordered_map<std::uint64_t, std::size_t> live_;  // by address
  std::vector<trace::StepPeak> steps_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> assumptions_;  // by what, where
  std::uint32_t step_ = 0;
  bool gradients_marked_ = true;
  Bytes allocated_, active_, requested_;
  trace::Peak peak_;
  std::uint32_t peak_event_ = 0;
  trace::Name line_at_peak_ = 0;
  std::array<Bytes, trace::kPhases> peaks_of_phases_{};
};

}  // namespace headroom::dryrun::detail
