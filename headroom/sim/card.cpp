#include "headroom/sim/card.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "headroom/base/time.h"
#include "headroom/memory/rescue.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/generator.h"
#include "headroom/sim/device/stream_order.h"
#include "headroom/sim/shared_box.h"
#include "headroom/trace/recording_observer.h"

namespace headroom::sim {
namespace {

Bytes share_of(Bytes capacity, double share) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(capacity.count) * share)};
}

}  // namespace

class Card::Relay final : public allocator::Observer {
 public:
  Relay(trace::Recorder* recorder, sim::Observer* observer, int card) : observer_(observer) {
    if (recorder != nullptr)
      recording_.emplace(*recorder,
                         trace::RecordingObserverOptions{.device = static_cast<std::uint16_t>(card),
                                                         .now_ns = wall_time_ns});
  }
  void on(const allocator::AllocatorEvent& allocator_event) override {
    if (recording_) recording_->on(allocator_event);
    if (observer_ != nullptr) observer_->on_event(allocator_event);
  }

 private:
  std::optional<trace::RecordingObserver> recording_;
  sim::Observer* observer_;
};

Card::Card(CardOptions options)
    : options_(std::move(options)),
      mode_(options_.mode),
      rules_(options_.rules),
      slow_way_(options_.slow_way),
      allocator_({.capacity = options_.capacity, .settings = options_.settings}),
      box_(options_.box),
      memory_fraction_(options_.settings.per_process_memory_fraction),
      generator_(detail::make_generator(options_.index)) {
  settle();
}

Card::~Card() = default;

c10::Device Card::device() const {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(options_.index)};
}

// ---- Memory ----

std::optional<double> Card::assume_true() const {
  const double share = assume_true_.load(std::memory_order_relaxed);
  return share < 0 ? std::nullopt : std::optional(share);
}

void Card::note_assumption(const std::string& what) {
  assumptions_.fetch_add(1, std::memory_order_relaxed);
  if (Observer* const told = observer()) told->on_assumption(what);
}

allocator::BlockId Card::allocate(Bytes bytes, allocator::StreamId stream) {
  memory::Refusal refusal{.device = device(), .requested = bytes, .stream = stream, .times = 0};
  for (;;) try {
      return request(bytes, stream);
    } catch (c10::OutOfMemoryError& error) {
      ++refusal.times;
      if (!memory::is_rescued(refusal, error)) throw;
    }
}

allocator::BlockId Card::request(Bytes bytes, allocator::StreamId stream) {
  if (Observer* const told = observer()) told->on_request();
  std::unique_lock lock(mutex_);
  ++requests_;
  const bool injected = injector_ && disturb(bytes);
  const allocator::BlockId block = injected ? allocator::kNoBlock : take(bytes, stream);
  wait_for_releases();
  if (block == allocator::kNoBlock) refuse(bytes, std::move(lock), injected);
  if (c10::memoryProfilingEnabled())
    report(allocator_.block(block).address, allocator_.block(block).size.count);
  return block;
}

// True if the injector refuses the request.
bool Card::disturb(Bytes bytes) {
  const trace::Recorder* const recorder = recorder_.load();
  Request request{.number = requests_, .bytes = bytes, .card = options_.index};
  if (recorder != nullptr) {
    request.phase = recorder->phase();
    request.step = recorder->step();
  }
  const Disturbance disturbance = injector_(request);
  if (disturbance.neighbour_share) {
    used_by_injection_ = share_of(options_.capacity, *disturbance.neighbour_share);
    allocator_.set_used_by_others(used_by_others());
  }
  return disturbance.refuse;
}

allocator::BlockId Card::take(Bytes bytes, allocator::StreamId stream) {
  if (box_ == nullptr) return allocator_.allocate(bytes, stream);
  // The turn lasts until our share is published, so that no other process allocates meanwhile.
  const SharedBox::Turn turn(*box_);
  allocator_.set_used_by_others(used_by_others());
  const allocator::BlockId block = allocator_.allocate(bytes, stream);
  try {
    publish();
  } catch (...) {
    if (block != allocator::kNoBlock) allocator_.free(block);
    throw;
  }
  return block;
}

void Card::refuse(Bytes bytes, std::unique_lock<std::mutex> lock, bool injected) {
  const allocator::OutOfMemory refusal =
      injected ? injected_refusal(bytes) : allocator_.last_out_of_memory();
  last_out_of_memory_ = refusal;
  lock.unlock();
  c10::reportOutOfMemoryToProfiler(bytes.count, static_cast<std::size_t>(refusal.allocated.count),
                                   static_cast<std::size_t>(refusal.reserved.count), device());
  const std::string number = std::to_string(options_.index);
  // PyTorch's exact text, with the device's name where PyTorch has only its number: programs that
  // parse PyTorch's text can parse this one.
  const std::string name = detail::are_shown_as_cuda() ? "" : " (sim:" + number + ")";
  TORCH_CHECK_WITH(OutOfMemoryError, false, allocator::to_string(refusal, "GPU " + number + name));
}

// The card's true figures, counted and reported like a request that does not fit.
allocator::OutOfMemory Card::injected_refusal(Bytes bytes) {
  ++injected_ooms_;
  const allocator::Statistics& now = allocator_.statistics();
  const Bytes free = allocator_.free_on_card();
  if (relay_ != nullptr)
    relay_->on({.kind = allocator::AllocatorEvent::Kind::oom,
                .address = static_cast<std::uint64_t>(free.count),
                .size = bytes});
  return {.requested = bytes,
          .tried = bytes,
          .capacity = options_.capacity,
          .free = free,
          .limit = {},
          .allocated = Bytes{now.allocated_bytes.all.current},
          .reserved = Bytes{now.reserved_bytes.all.current},
          .free_in_private_pools = {}};
}

void Card::free(allocator::BlockId block) {
  const std::lock_guard lock(mutex_);
  if (!c10::memoryProfilingEnabled()) return allocator_.free(block);
  const allocator::BlockInfo info = allocator_.block(block);
  allocator_.free(block);
  report(info.address, -info.size.count);
}

// Reports to the profiler, as CUDA's allocator does: the block's rounded size, and the bytes
// allocated and reserved now.
void Card::report(std::uint64_t address, std::int64_t change) const {
  const allocator::Statistics& now = allocator_.statistics();
  c10::reportMemoryUsageToProfiler(
      reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr): names it, no more
      change, static_cast<std::size_t>(now.allocated_bytes.all.current),
      static_cast<std::size_t>(now.reserved_bytes.all.current), device());
}

void Card::record_stream(allocator::BlockId block, allocator::StreamId stream) {
  const std::lock_guard lock(mutex_);
  allocator_.record_stream(block, stream);
}

void Card::empty_cache() {
  const std::lock_guard lock(mutex_);
  allocator_.empty_cache();
  wait_for_releases();
  settle();
}

// cudaFree and the unmapping of a segment wait for the card's work.
void Card::wait_for_releases() {
  if (options_.stream_order == nullptr) return;
  const std::int64_t now = allocator_.statistics().num_device_free;
  if (now != releases_) options_.stream_order->synchronize_card(options_.index);
  releases_ = now;
}

void Card::reset_peaks() {
  const std::lock_guard lock(mutex_);
  allocator_.reset_peaks();
}

void Card::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  allocator_.reset_accumulated();
  injected_ooms_ = 0;
  releases_ = 0;
}

void Card::change_settings(std::string_view text) {
  const std::lock_guard lock(mutex_);
  allocator::Settings settings = allocator_.settings();
  allocator::apply(settings, text);
  allocator_.change_settings(settings);
}

void Card::set_memory_fraction(double fraction) {
  const std::lock_guard lock(mutex_);
  allocator_.set_memory_fraction(fraction);
  memory_fraction_ = fraction;
}

double Card::memory_fraction() const {
  const std::lock_guard lock(mutex_);
  return memory_fraction_;
}

// ---- Others on the card ----

void Card::set_used_by_others(Bytes used) {
  const std::lock_guard lock(mutex_);
  used_by_neighbour_ = used;
  settle();
}

void Card::leave_box() {
  const std::lock_guard lock(mutex_);
  box_.reset();
}

// Memory that this process's allocator cannot have, its own context included. For a shared box: as
// its turn saw it.
Bytes Card::used_by_others() const {
  const Bytes used = options_.context + used_by_neighbour_ + used_by_injection_;
  return box_ == nullptr ? used : used + box_->used_by_others(options_.index);
}

// Call in a turn of the box. Publishes the memory that this process holds of the card, if it has
// changed.
void Card::publish() {
  const Bytes used = options_.context + Bytes{allocator_.statistics().reserved_bytes.all.current};
  if (used != published_) box_->publish(options_.index, used);
  published_ = used;
}

// Passes a change on to the allocator and the box.
void Card::settle() {
  if (box_ == nullptr) return allocator_.set_used_by_others(used_by_others());
  const SharedBox::Turn turn(*box_);
  allocator_.set_used_by_others(used_by_others());
  publish();
}

// ---- Questions ----

allocator::Statistics Card::statistics() const {
  const std::lock_guard lock(mutex_);
  allocator::Statistics now = allocator_.statistics();
  now.num_ooms += injected_ooms_;
  return now;
}

Bytes Card::free_bytes() const {
  const std::lock_guard lock(mutex_);
  if (box_ == nullptr) return allocator_.free_on_card();
  const SharedBox::Turn turn(*box_);
  const Bytes reserved{allocator_.statistics().reserved_bytes.all.current};
  return std::max(Bytes{0}, options_.capacity - used_by_others() - reserved);
}

allocator::BlockInfo Card::block(allocator::BlockId block) const {
  const std::lock_guard lock(mutex_);
  return allocator_.block(block);
}

std::vector<allocator::SegmentInfo> Card::snapshot() const {
  const std::lock_guard lock(mutex_);
  return allocator_.snapshot();
}

std::optional<allocator::OutOfMemory> Card::last_out_of_memory() const {
  const std::lock_guard lock(mutex_);
  return last_out_of_memory_;
}

allocator::CachingAllocator Card::fork() const {
  const std::lock_guard lock(mutex_);
  return allocator_;
}

void Card::record(trace::Recorder* recorder) {
  const std::lock_guard lock(mutex_);
  recorder_ = recorder;
  observe();
}

Observer* Card::observe(Observer* observer) {
  const std::lock_guard lock(mutex_);
  Observer* const before = observer_.exchange(observer);
  observe();
  return before;
}

void Card::observe() {
  relay_.reset();
  if (recorder_.load() != nullptr || observer_.load() != nullptr)
    relay_ = std::make_unique<Relay>(recorder_.load(), observer_.load(), options_.index);
  allocator_.observe(relay_.get());
}

Injector Card::inject(Injector injector) {
  const std::lock_guard lock(mutex_);
  Injector before = std::exchange(injector_, std::move(injector));
  used_by_injection_ = {};
  settle();
  return before;
}

bool Card::has_workspace(const Workspace& workspace) const {
  const std::lock_guard lock(mutex_);
  return workspaces_.contains(workspace);
}

void Card::take_workspace(const Workspace& workspace, Bytes bytes) {
  (void)allocate(bytes, workspace.stream);  // throws before the workspace counts as taken
  const std::lock_guard lock(mutex_);
  workspaces_.insert(workspace);
}

std::uint64_t Card::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

}  // namespace headroom::sim
