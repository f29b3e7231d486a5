#include "headroom/cuda/loaded/asking_allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <mutex>
#include <type_traits>
#include <utility>

#include "headroom/cuda/loaded/recording.h"

namespace headroom::cuda {
namespace {

namespace real = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

std::atomic<CudaFunctions::Ask> asked{nullptr};

struct Nothing {
  template <typename Value>
  operator Value() const {  // NOLINT(google-explicit-constructor)
    return Value();
  }
};
// What `call` returns. A version of PyTorch without the function that it calls has no caller
// either.
template <typename Own, typename Call>
auto if_it_has(Own& own, const Call& call) {
  if constexpr (std::is_invocable_v<Call, Own&>)
    return call(own);
  else
    return Nothing{};
}

// Each function hands on to the allocator that was there, but for the three that make requests.
class AskingAllocator final : public real::CUDAAllocator {
 public:
  explicit AskingAllocator(real::CUDAAllocator& own) : own_(own) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    return until_refused(
        bytes, [&] { return c10::cuda::getCurrentCUDAStream().stream(); },
        [&] { return own_.allocate(bytes); });
  }
  void* raw_alloc(std::size_t bytes) override {
    return until_refused(
        bytes, [&] { return c10::cuda::getCurrentCUDAStream().stream(); },
        [&] { return own_.raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    return until_refused(
        bytes, [&] { return stream; }, [&] { return own_.raw_alloc_with_stream(bytes, stream); });
  }

  // ---- Handed on ----

  c10::DeleterFnPtr raw_deleter() const override { return own_.raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override {
    return own_.is_simple_data_ptr(pointer);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    own_.copy_data(to, from, bytes);
  }
  bool initialized() override { return own_.initialized(); }
  void emptyCache(MempoolId_t pool) override { own_.emptyCache(pool); }
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    own_.recordStream(pointer, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return own_.getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { own_.resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { own_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex device) override {
    return own_.getMemoryInfo(device);
  }
  void raw_delete(void* pointer) override { own_.raw_delete(pointer); }
  void init(int count) override { own_.init(count); }
  double getMemoryFraction(DeviceIndex device) override { return own_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    own_.setMemoryFraction(fraction, device);
  }
  std::vector<real::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return own_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { own_.enable(value); }
  bool isEnabled() const override { return own_.isEnabled(); }
  void cacheInfo(DeviceIndex device, std::size_t* largest) override {
    own_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* pointer, std::size_t* size) override {
    return own_.getBaseAllocation(pointer, size);
  }
  real::SnapshotInfo snapshot(MempoolId_t pool, bool traces) override {
    return own_.snapshot(pool, traces);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    own_.beginAllocateToPool(device, pool, std::move(filter));
    ++pools_in_use_;
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    own_.endAllocateToPool(device, pool);
    --pools_in_use_;
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    own_.releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return own_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    own_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    own_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override { own_.setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return own_.checkPoolLiveAllocations(device, pool, expected);
  }
  real::ShareableHandle shareIpcHandle(void* pointer) override {
    return own_.shareIpcHandle(pointer);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return own_.getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return own_.isHistoryEnabled(); }
  void recordHistory(bool enabled, real::CreateContextFn context, std::size_t most_entries,
                     real::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    own_.recordHistory(enabled, context, most_entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) override {
    own_.recordAnnotation(text);
  }
  void pushCompileContext(std::string& text) override { own_.pushCompileContext(text); }
  void popCompileContext() override { own_.popCompileContext(); }
  void setUserMetadata(const std::string& text) override { own_.setUserMetadata(text); }
  std::string getUserMetadata() override { return own_.getUserMetadata(); }
  void attachOutOfMemoryObserver(real::OutOfMemoryObserver observer) override {
    own_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(real::AllocatorTraceTracker tracker) override {
    own_.attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex to) override {
    own_.enablePeerAccess(device, to);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peers) override {
    return own_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
  }
  std::shared_ptr<real::AllocatorState> getCheckpointState(DeviceIndex device,
                                                           MempoolId_t id) override {
    return own_.getCheckpointState(device, id);
  }
  real::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<real::AllocatorState> state) override {
    return own_.setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return own_.name(); }

  // ---- Handed on, where this version of PyTorch has it ----

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsuggest-override"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  virtual void markCaptureBegin(DeviceIndex device) {
    if_it_has(own_, [&](auto& own) -> decltype(own.markCaptureBegin(device)) {
      own.markCaptureBegin(device);
    });
  }
  virtual void markCaptureEnd(DeviceIndex device) {
    if_it_has(own_, [&](auto& own) -> decltype(own.markCaptureEnd(device)) {
      own.markCaptureEnd(device);
    });
  }
  virtual std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) {
    return if_it_has(own_, [&](auto& own) -> decltype(own.getContextForPointer(pointer)) {
      return own.getContextForPointer(pointer);
    });
  }
  virtual bool supportsUserMetadata() {
    return if_it_has(own_, [](auto& own) -> decltype(own.supportsUserMetadata()) {
      return own.supportsUserMetadata();
    });
  }
  virtual void annotateMemory(const void* pointer, const std::string& text) {
    if_it_has(own_, [&](auto& own) -> decltype(own.annotateMemory(pointer, text)) {
      own.annotateMemory(pointer, text);
    });
  }
  using RejectionObserver =
      std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)>;
  virtual void attachOomRejectionObserver(RejectionObserver observer) {
    if_it_has(own_, [&](auto& own) -> decltype(own.attachOomRejectionObserver(observer)) {
      own.attachOomRejectionObserver(observer);
    });
  }
  virtual c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) {
    return if_it_has(own_, [&](auto& own) -> decltype(own.allocateWithAddress(bytes, address)) {
      return own.allocateWithAddress(bytes, address);
    });
  }
#pragma GCC diagnostic pop

 private:
  template <typename Stream, typename Request>
  std::invoke_result_t<Request> until_refused(std::size_t bytes, const Stream& stream,
                                              const Request& request) {
    for (int times = 1;; ++times) try {
        return request();
      } catch (c10::OutOfMemoryError& error) {
        const CudaFunctions::Ask ask = asked.load();
        const int device = c10::cuda::current_device();
        if (ask == nullptr || pools_in_use_ > 0 ||
            !ask(device, Bytes{static_cast<std::int64_t>(bytes)}, stream_number(device, stream()),
                 times, error))
          throw;
      }
  }

  real::CUDAAllocator& own_;
  // While requests go to a pool of their own, as all of a graph that is captured do, nothing that
  // is freed elsewhere serves them, and a graph remembers the addresses that it met.
  std::atomic<int> pools_in_use_ = 0;
};

}  // namespace

void ask_before_refusing(CudaFunctions::Ask ask) {
  asked = ask;
  static std::once_flag once;  // memory's last owner may free it at the very end of the process
  if (ask != nullptr)
    std::call_once(once, [] {
      auto* const asking = new AskingAllocator(*real::get());
      real::allocator.store(asking);
    });
}

}  // namespace headroom::cuda
