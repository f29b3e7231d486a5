#include "headroom/sim/card.h"

#include <c10/util/Exception.h>

#include <chrono>

#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/generator.h"
#include "headroom/trace/recording_observer.h"

namespace headroom::sim {
namespace {

allocator::CachingAllocator allocator_for(const CardOptions& options) {
  allocator::CachingAllocator allocator(
      {.capacity = options.capacity, .settings = options.settings});
  if (options.context.count > 0) allocator.set_used_by_others(options.context);
  return allocator;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

class Card::Observer final : public allocator::Observer {
 public:
  Observer(trace::Recorder* recorder, Watcher* watcher, int card) : watcher_(watcher) {
    if (recorder != nullptr)
      recording_.emplace(*recorder,
                         trace::RecordingObserverOptions{
                             .device = static_cast<std::uint16_t>(card), .now_ns = now_ns});
  }
  void on(const allocator::Happening& happening) override {
    if (recording_) recording_->on(happening);
    if (watcher_ != nullptr) watcher_->on_happening(happening);
  }

 private:
  std::optional<trace::RecordingObserver> recording_;
  Watcher* watcher_;
};

Card::Card(CardOptions options)
    : options_(std::move(options)),
      mode_(options_.mode),
      rules_(options_.rules),
      allocator_(allocator_for(options_)),
      generator_(detail::make_generator(options_.index)) {}

Card::~Card() = default;

c10::Device Card::device() const {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(options_.index)};
}

allocator::BlockId Card::allocate(Bytes bytes, allocator::StreamId stream) {
  std::unique_lock lock(mutex_);
  ++requests_;
  const bool injected = [&] {
    if (!injector_) return false;
    const trace::Recorder* recorder = recorder_.load();
    return injector_({.number = requests_,
                      .bytes = bytes,
                      .card = options_.index,
                      .phase = recorder != nullptr ? recorder->phase() : trace::Phase::unknown});
  }();
  if (!injected) {
    const allocator::BlockId block = allocator_.allocate(bytes, stream);
    if (block != allocator::kNoBlock) return block;
  }
  refuse(bytes, std::move(lock), injected);
}

void Card::refuse(Bytes bytes, std::unique_lock<std::mutex> lock, bool injected) {
  allocator::OutOfMemory refusal;
  if (injected) {
    const allocator::Statistics& now = allocator_.statistics();
    refusal = {.requested = bytes,
               .tried = bytes,
               .capacity = options_.capacity,
               .free = allocator_.free_on_card(),
               .limit = {},
               .allocated = Bytes{now.allocated_bytes.all.current},
               .reserved = Bytes{now.reserved_bytes.all.current},
               .free_in_private_pools = {}};
    if (trace::Recorder* recorder = recorder_.load()) {
      trace::Event event;
      event.kind = trace::Kind::oom;
      event.time_ns = now_ns();
      event.bytes = bytes;
      event.address = static_cast<std::uint64_t>(refusal.free.count);
      event.device = static_cast<std::uint16_t>(options_.index);
      recorder->append(event);
    }
  } else {
    refusal = allocator_.last_out_of_memory();
  }
  last_out_of_memory_ = refusal;
  lock.unlock();
  const std::string number = std::to_string(options_.index);
  // PyTorch's text to the letter, with the device's name where PyTorch has its number alone: what
  // reads the one, reads the other.
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   allocator::to_string(refusal, "GPU " + number + " (sim:" + number + ")"));
}

void Card::free(allocator::BlockId block) noexcept {
  const std::lock_guard lock(mutex_);
  allocator_.free(block);
}

void Card::record_stream(allocator::BlockId block, allocator::StreamId stream) {
  const std::lock_guard lock(mutex_);
  allocator_.record_stream(block, stream);
}

void Card::empty_cache() {
  const std::lock_guard lock(mutex_);
  allocator_.empty_cache();
}

void Card::reset_peaks() {
  const std::lock_guard lock(mutex_);
  allocator_.reset_peaks();
}

void Card::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  allocator_.reset_accumulated();
}

void Card::set_memory_fraction(double fraction) {
  const std::lock_guard lock(mutex_);
  allocator_.set_memory_fraction(fraction);
}

void Card::change_settings(const allocator::Settings& settings) {
  const std::lock_guard lock(mutex_);
  allocator_.change_settings(settings);
}

void Card::set_used_by_others(Bytes used) {
  const std::lock_guard lock(mutex_);
  allocator_.set_used_by_others(options_.context + used);
}

allocator::Statistics Card::statistics() const {
  const std::lock_guard lock(mutex_);
  return allocator_.statistics();
}

Bytes Card::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocator_.free_on_card();
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

Watcher* Card::watch(Watcher* watcher) {
  const std::lock_guard lock(mutex_);
  Watcher* const before = watcher_.exchange(watcher);
  observe();
  return before;
}

void Card::observe() {
  observer_.reset();
  if (recorder_.load() != nullptr || watcher_.load() != nullptr)
    observer_ = std::make_unique<Observer>(recorder_.load(), watcher_.load(), options_.index);
  allocator_.observe(observer_.get());
}

Injector Card::inject(Injector injector) {
  const std::lock_guard lock(mutex_);
  return std::exchange(injector_, std::move(injector));
}

void Card::use_cublas(allocator::StreamId stream) {
  if (!options_.cublas_workspaces || rules() != Rules::cuda) return;
  if (options_.profile == nullptr || !options_.profile->cublas_workspace) return;
  {
    const std::lock_guard lock(mutex_);
    if (!cublas_workspaces_.emplace(std::this_thread::get_id(), stream).second) return;
  }
  (void)allocate(*options_.profile->cublas_workspace, stream);  // for good, as in PyTorch
}

std::uint64_t Card::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::optional<std::uint64_t> address_of(const at::TensorBase& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return {};
  const detail::Block* const block = detail::block_of(tensor.storage());
  if (block == nullptr) return {};
  return block->card->block(block->id).address;
}

}  // namespace headroom::sim
