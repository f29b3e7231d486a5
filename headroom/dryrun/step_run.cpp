#include "headroom/dryrun/step_run.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "headroom/dryrun/elsewhere.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/observer.h"
#include "headroom/sim/simulate.h"

namespace headroom::dryrun {
namespace {

using allocator::CachingAllocator;
using allocator::Operation;

// Records the allocator requests while it is alive.
class RequestLog final : public sim::Observer {
 public:
  explicit RequestLog(sim::Card& card) : card_(card) { card_.observe(this); }
  ~RequestLog() override { card_.observe(nullptr); }
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  void on_operator(const sim::OperatorCall&) override { touched_ = true; }

  void on_event(const allocator::AllocatorEvent& allocator_event) override {
    using Kind = allocator::AllocatorEvent::Kind;
    touched_ = true;
    if (allocator_event.kind == Kind::alloc) {
      live_[allocator_event.address] = {ids_, allocator_event.size};
      add(Operation::Kind::allocate, ids_++, allocator_event.size, allocator_event.stream);
    } else if (allocator_event.kind == Kind::free_requested) {
      if (const auto found = live_.find(allocator_event.address); found != live_.end()) {
        add(Operation::Kind::free, found->second.first, {}, allocator_event.stream);
        live_.erase(found);
      }
    }
  }

  // True if the steps, which begin with reset_peaks(), used the card.
  [[nodiscard]] bool touched() const { return touched_; }

  void reset_peaks() {
    touched_ = false;
    card_.reset_peaks();
    add(Operation::Kind::reset_peaks, 0, {}, 0);
  }

  void mark() { add(Operation::Kind::nothing, 0, {}, 0); }

  [[nodiscard]] Bytes alive() const {
    Bytes sum;
    for (const auto& [address, one] : live_) sum += one.second;
    return sum;
  }
  // Sorts consecutive frees by id: their order may depend on host addresses (autocast's cache is a
  // hash table), and an allocator ends in the same state for any order.
  [[nodiscard]] Requests take() {
    const auto is_free = [](const Operation& one) { return one.kind == Operation::Kind::free; };
    for (auto begin = requests_.begin(); begin != requests_.end();) {
      const auto from = std::find_if(begin, requests_.end(), is_free);
      begin = std::find_if_not(from, requests_.end(), is_free);
      std::sort(from, begin, [](const auto& one, const auto& other) { return one.id < other.id; });
    }
    return std::move(requests_);
  }

 private:
  void add(Operation::Kind kind, std::uint32_t id, Bytes bytes, allocator::StreamId stream) {
    requests_.push_back({.bytes = bytes.count, .id = id, .stream = stream, .kind = kind});
  }

  sim::Card& card_;
  Requests requests_;
  std::unordered_map<std::uint64_t, std::pair<std::uint32_t, Bytes>> live_;  // by address
  std::uint32_t ids_ = 0;
  std::atomic<bool> touched_{false};
};

Bytes gradients_of(const Subject& subject) {
  std::int64_t bytes = 0;
  std::unordered_set<const c10::TensorImpl*> seen;  // modules may share a parameter
  for (const auto& [name, parameter] : subject.parameters)
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      bytes += static_cast<std::int64_t>(parameter.nbytes());
  return Bytes{bytes};
}

}  // namespace

StepRun run_steps(const gpu::SimulatedCard& on, const MakeSubject& make, int steps,
                  const CardOptions& options) {
  sim::check_alone("find_largest");
  const sim::Simulation simulation =
      sim::simulate(gpu::SimulatedBox{.cards = {on}, .name = {}},
                    {.mode = sim::Mode::shape_only,
                     .rules = options.rules,
                     .settings = options.settings,
                     .cublas_workspaces = options.cublas_workspaces});
  sim::Card& card = simulation.card(0);
  StepRun run{.fits = true,
              .peak_reserved = {},
              .requests = {},
              .lasting = {},
              .gradients = {},
              .card_at_start = card.fork()};
  Subject subject;
  RequestLog log(card);
  try {
    subject = make(simulation.device(0));
    run.gradients = gradients_of(subject);
    if (subject.marks) subject.marks([&log] { log.mark(); });
    log.reset_peaks();
    for (int step = 0; step < steps; ++step) subject.step();
    if (!log.touched()) refuse_step_elsewhere("find_max_batch_size", card, subject);
  } catch (const c10::OutOfMemoryError&) {
    if (card.statistics().num_ooms == 0) throw;
    run.fits = false;
  }
  run.peak_reserved = Bytes{card.statistics().reserved_bytes.all.peak};
  run.lasting = log.alive();
  run.requests = log.take();
  return run;
}

double Growth::last_chunk(std::int64_t size) const {
  const std::int64_t left = size * tokens % chunk;
  return static_cast<double>(left == 0 ? chunk : left);
}

gpu::SimulatedCard card_like(c10::Device device) {
  const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(device);
  gpu::SimulatedCard card{.name = device.str(),
                          .total = now.obtainable().value_or(now.reserved),
                          .reserved = {},
                          .profile = {}};
  if (device.is_privateuseone())
    if (const auto* profile = sim::card_of(device)->options().profile) card.profile = profile->key;
  return card;
}

gpu::SimulatedCard without_limit(const gpu::SimulatedCard& card) {
  gpu::SimulatedCard larger = card;
  larger.total = allocator::kUnlimited;
  larger.reserved = {};
  return larger;
}

CachingAllocator with_capacity(const CachingAllocator& card, Bytes capacity) {
  return CachingAllocator({.capacity = capacity, .settings = card.settings()});
}

bool is_served(const Requests& requests, CachingAllocator card) {
  allocator::Player player(std::move(card));
  return std::all_of(requests.begin(), requests.end(),
                     [&](const Operation& operation) { return player.play(operation); });
}

CardBounds card_bounds(const Requests& requests, const CachingAllocator& card) {
  allocator::Player player(with_capacity(card, allocator::kUnlimited));
  player.play(requests);
  const allocator::Statistics& statistics = std::as_const(player).card().statistics();
  return {Bytes{statistics.allocated_bytes.all.peak}, Bytes{statistics.reserved_bytes.all.peak},
          Bytes{statistics.requested_bytes.all.peak}};
}

Bytes peak_reserved(const Requests& requests, CachingAllocator card) {
  allocator::Player player(std::move(card));
  player.play(requests);
  return Bytes{std::as_const(player).card().statistics().reserved_bytes.all.peak};
}

// The allocator reserves segments in steps of 2 MiB, so no size between two of them matters.
Bytes smallest_card(const Requests& requests, const CachingAllocator& card) {
  constexpr std::int64_t kStep = std::int64_t{2} << 20;
  const auto [at_least, at_most, requested] = card_bounds(requests, card);
  Bytes enough = at_most, too_little{(at_least.count - 1) / kStep * kStep};
  if (!is_served(requests, with_capacity(card, enough))) return enough;
  while ((enough - too_little).count > kStep) {
    const Bytes middle{
        std::max(too_little.count / kStep + 1, (enough + too_little).count / 2 / kStep) * kStep};
    (is_served(requests, with_capacity(card, middle)) ? enough : too_little) = middle;
  }
  return enough;
}

}  // namespace headroom::dryrun
