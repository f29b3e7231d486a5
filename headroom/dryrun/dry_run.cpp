#include "headroom/dryrun/dry_run.h"

#include <c10/util/Exception.h>

#include <chrono>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/dryrun/detail/allocation_ledger.h"
#include "headroom/dryrun/elsewhere.h"
#include "headroom/sim/child.h"

namespace headroom::dryrun {
namespace {

constexpr std::string_view kUnlimited = "unlimited";

class ObserverScope {
 public:
  ObserverScope(sim::Card& card, sim::Observer& observer)
      : card_(card), before_(card.observe(&observer)) {}
  ~ObserverScope() { card_.observe(before_); }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  sim::Card& card_;
  sim::Observer* before_;
};

void check(const sim::Card& card, const Subject& subject, const Options& options) {
  if (card.mode() != sim::Mode::shape_only)
    throw UsageError(expectation("dry_run", "a shape-only card",
                                 card.device().str() + " in compute mode",
                                 "a card of its own, or shape-only mode before the model is made"));
  if (!subject.step)
    throw UsageError(expectation("dry_run", "a step to run", "none", "Subject::step"));
  if (options.steps < 1)
    throw UsageError(expectation("dry_run", "at least one step", std::to_string(options.steps),
                                 "2: the second step begins with the optimizer's state"));
}

// Counts refusals of this card during this run. A step may use other cards too, and must handle
// their refusals itself.
class Refusals {
 public:
  explicit Refusals(const sim::Card& card) : card_(card), before_(count()) {}
  [[nodiscard]] bool any() const { return count() != before_; }
  [[nodiscard]] std::optional<allocator::OutOfMemory> last() const {
    return card_.last_out_of_memory();
  }

 private:
  [[nodiscard]] std::int64_t count() const { return card_.statistics().num_ooms; }
  const sim::Card& card_;
  const std::int64_t before_;
};

trace::Report run_on(const gpu::SimulatedCard& on, const std::function<Subject(c10::Device)>& make,
                     const Options& options, const CardOptions& card) {
  sim::check_alone("dry_run");
  const sim::Simulation simulation = sim::simulate(gpu::SimulatedBox{.cards = {on}, .name = {}},
                                                   {.mode = sim::Mode::shape_only,
                                                    .rules = card.rules,
                                                    .settings = card.settings,
                                                    .cublas_workspaces = card.cublas_workspaces});
  const Refusals refusals(simulation.card(0));
  Subject subject;
  try {
    subject = make(simulation.device(0));
  } catch (const c10::OutOfMemoryError&) {
    if (!refusals.any()) throw;
    trace::Report report;
    report.peak.phase = trace::Phase::init;
    report.out_of_memory = refusals.last();
    return report;
  }
  return dry_run(simulation.card(0), subject, options);
}

// If the card is too small, runs again on the same card without a limit, to report the memory
// needed.
trace::Report run_on_card_or_larger(const gpu::SimulatedCard& on,
                                    const std::function<Subject(c10::Device)>& make,
                                    const Options& options, const CardOptions& card) {
  trace::Report report = run_on(on, make, options, card);
  if (report.fits()) return report;
  gpu::SimulatedCard larger = on;
  larger.total = allocator::kUnlimited;
  larger.reserved = {};
  trace::Report unlimited = run_on(larger, make, options, card);
  unlimited.out_of_memory = report.out_of_memory;
  unlimited.card = on.name;
  unlimited.room = room_of(on);
  unlimited.is_within_room = false;
  return unlimited;
}

}  // namespace

trace::Report dry_run(sim::Card& card, const Subject& subject, const Options& options) {
  check(card, subject, options);
  card.reset_peaks();
  const std::uint64_t values_before = card.values_read_as_zero();
  const std::uint64_t decided_before = card.decided_by_unknown();
  detail::Ledger ledger(card, subject);
  const Refusals refusals(card);
  std::optional<allocator::OutOfMemory> refusal;
  const auto start = std::chrono::steady_clock::now();
  {
    const ObserverScope watching(card, ledger);
    for (int step = 1; step <= options.steps && !refusal; ++step) {
      ledger.begin_step(static_cast<std::uint32_t>(step));
      try {
        subject.step();
      } catch (const c10::OutOfMemoryError&) {
        if (!refusals.any()) throw;
        refusal = refusals.last();
      }
      ledger.end_step();
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!ledger.touched()) refuse_step_elsewhere("dry_run", card, subject);
  trace::Report report = ledger.settle(options);
  report.took_s = took.count();
  report.out_of_memory = refusal;
  report.values_read_as_zero = card.values_read_as_zero() - values_before;
  report.decided_by_unknown = card.decided_by_unknown() - decided_before;
  return report;
}

trace::Report dry_run(const gpu::SimulatedCard& on, const std::function<Subject(c10::Device)>& make,
                      const Options& options, const CardOptions& card_options) {
  const auto run = [&] { return run_on_card_or_larger(on, make, options, card_options); };
  if (!sim::needs_child()) return run();
  const std::string answer = sim::in_child([&] { return to_line(to_json(run())); });
  return trace::report_from_json(parse_json(answer, "the report of a child process"));
}

trace::Report dry_run(std::string_view card_spec, const std::function<Subject(c10::Device)>& make,
                      const Options& options, const CardOptions& card_options) {
  return dry_run(card_for(card_spec), make, options, card_options);
}

gpu::SimulatedCard card_for(std::string_view spec) {
  if (spec == kUnlimited)
    return {.name = "a card without a limit",
            .total = allocator::kUnlimited,
            .reserved = {},
            .profile = {}};
  const gpu::SimulatedBox box = gpu::parse_simulated(spec);
  if (box.cards.size() != 1 || !box.name.empty())
    throw UsageError(expectation("dry_run", "one card of its own", spec,
                                 "simulate() and dry_run(card, subject) for each card"));
  return box.cards.front();
}

sim::Card& detail::card_of_all(const Subject& subject) {
  std::optional<c10::Device> device;
  for (const auto& [name, tensor] : subject.parameters) {
    if (device && tensor.device() != *device)
      throw UsageError(
          expectation("dry_run", "a model on one simulated card",
                      name + " on " + tensor.device().str() + " and others on " + device->str(),
                      "dry_run(card, subject) for each card"));
    if (tensor.device().type() != c10::DeviceType::PrivateUse1)
      throw UsageError(expectation("dry_run", "a model on a simulated card",
                                   name + " on " + tensor.device().str(),
                                   "net->to(box.device(0)), or making it there: libtorch::on"));
    device = tensor.device();
  }
  if (!device)
    throw UsageError(
        expectation("dry_run", "a model with parameters", "one without", "dry_run(card, subject)"));
  return *sim::card_of(*device);
}

void detail::add_inputs(std::vector<at::Tensor>& inputs, const at::Tensor& batch) {
  inputs.push_back(batch);
}

}  // namespace headroom::dryrun
