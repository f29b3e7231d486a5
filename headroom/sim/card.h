// One simulated GPU: the caching allocator's model with a capacity, behind a lock, and what belongs
// to a card besides - its mode, whose kernels' sizes it follows, its random state, its streams.
//
//   Simulation box = simulate("2x24GiB");
//   Card& card = box.card(0);
//   at::Tensor x = at::empty({1024, 1024}, card.device());
//   card.statistics().allocated_bytes.all.peak;  // 4194304
//
// Threads: everything may be called from any thread. A card outlives its simulation for as long as
// a tensor lies on it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/observer.h"
#include "headroom/trace/recorder.h"

namespace headroom::sim {

class SharedBox;

enum class Mode : std::uint8_t {
  shape_only,  // tensors have no data; an unknown number reads as zero
  compute,     // tensors have host memory and operators run the CPU's kernels on it
};

// Whose kernels' inner sizes are followed: what they save and need on the way.
enum class Rules : std::uint8_t {
  cuda,
  cpu,  // to compare with tools that run on the CPU
};

// What is asked of a card, as an injector sees it.
struct Request {
  std::uint64_t number = 0;  // of this card's allocations since it exists, from 1
  Bytes bytes;
  int card = 0;
  // As the recorder has them; unknown and 0 without one.
  trace::Phase phase = trace::Phase::unknown;
  std::uint32_t step = 0;
};

// What an injector does about a request.
struct Disturbance {
  Disturbance(bool refused = false,  // NOLINT(google-explicit-constructor): most only refuse
              std::optional<double> neighbour = {})
      : refuse(refused), neighbour_share(neighbour) {}
  bool refuse;  // with an out-of-memory, as if the card were full
  // From here on somebody else holds this share of the card's capacity; nothing: as before.
  std::optional<double> neighbour_share;
};

// Asked before every allocation, under the card's lock. It must not touch the card. injection.h has
// a set of them.
using Injector = std::function<Disturbance(const Request&)>;

struct CardOptions {
  int index = 0;
  std::string name = {};  // "NVIDIA GeForce RTX 4090"
  Bytes capacity = allocator::kUnlimited;
  Bytes context = {};  // of the process, off the capacity from the start
  Mode mode = Mode::shape_only;
  Rules rules = Rules::cuda;
  allocator::Settings settings = {};
  const gpu::DeviceProfile* profile = nullptr;  // of its chip; null: no workspaces, and
                                                // attention as on an A100
  std::shared_ptr<SharedBox> box = nullptr;  // that other processes use, too; null: a private one
  bool slow_way = false;                     // see Card::slow_way
  bool cublas_workspaces = true;  // taken at the first matrix product, as PyTorch does on CUDA
};

class Card : public std::enable_shared_from_this<Card> {
 public:
  // Only by std::make_shared: tensors keep their card.
  explicit Card(CardOptions options);
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  ~Card();

  [[nodiscard]] int index() const { return options_.index; }
  [[nodiscard]] c10::Device device() const;
  [[nodiscard]] const CardOptions& options() const { return options_; }

  // ---- How operators run here ----

  [[nodiscard]] Mode mode() const { return mode_.load(std::memory_order_relaxed); }
  [[nodiscard]] Rules rules() const { return rules_.load(std::memory_order_relaxed); }
  // Both answer what was set before. Tensors of shape-only time have no data later on.
  Mode set_mode(Mode mode) { return mode_.exchange(mode); }
  Rules set_rules(Rules rules) { return rules_.exchange(rules); }

  // Whether a shape-only card runs an operator that nobody has a shape rule for on the CPU, over
  // zeros: right for results whose shapes do not depend on values, and as slow as the CPU.
  [[nodiscard]] bool slow_way() const { return slow_way_.load(std::memory_order_relaxed); }
  bool set_slow_way(bool allowed) { return slow_way_.exchange(allowed); }

  // ---- Memory ----

  // Throws c10::OutOfMemoryError with PyTorch's text.
  [[nodiscard]] allocator::BlockId allocate(Bytes bytes, allocator::StreamId stream);
  // Throws UsageError for a block that is not allocated: one that was freed before, for instance.
  void free(allocator::BlockId block);
  void record_stream(allocator::BlockId block, allocator::StreamId stream);
  void empty_cache();
  void reset_peaks();
  void reset_accumulated();
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const;
  void change_settings(const allocator::Settings& settings);
  // Memory of the card that a neighbour holds now, besides those of a shared box.
  void set_used_by_others(Bytes used);
  // From here on nothing is told to the shared box or asked of it: its simulation has ended.
  void leave_box();

  [[nodiscard]] allocator::Statistics statistics() const;
  [[nodiscard]] Bytes free_bytes() const;
  [[nodiscard]] Bytes capacity() const { return options_.capacity; }
  [[nodiscard]] allocator::BlockInfo block(allocator::BlockId block) const;
  [[nodiscard]] std::vector<allocator::SegmentInfo> snapshot() const;
  // Of the last refusal; nothing: there was none.
  [[nodiscard]] std::optional<allocator::OutOfMemory> last_out_of_memory() const;
  // A copy of the allocator as it stands, to try something on.
  [[nodiscard]] allocator::CachingAllocator fork() const;

  // ---- Watching and disturbing ----

  // Everything that happens goes to the recorder, until null is given; it must live that long.
  void record(trace::Recorder* recorder);
  [[nodiscard]] trace::Recorder* recorder() const { return recorder_.load(); }
  // The same for an observer. Answers the one before.
  Observer* observe(Observer* observer);
  [[nodiscard]] Observer* observer() const { return observer_.load(std::memory_order_relaxed); }
  // Until an empty one is given; the neighbour of the one before goes. Answers the one before.
  Injector inject(Injector injector);
  // How many allocations were asked for so far.
  [[nodiscard]] std::uint64_t requests() const;

  // Values that were read from the card though they are not known (`.item()`, copies to the host in
  // shape-only mode): each was answered as if every unknown number were zero.
  [[nodiscard]] std::uint64_t values_read_as_zero() const { return values_read_.load(); }
  // As many of them were read alone, by `.item()`, `if` or `equal`: a program may go by them.
  [[nodiscard]] std::uint64_t decided_by_unknown() const { return decided_by_unknown_.load(); }
  void note_value_read() { values_read_.fetch_add(1, std::memory_order_relaxed); }
  void note_decision() {
    note_value_read();
    decided_by_unknown_.fetch_add(1, std::memory_order_relaxed);
  }

  // ---- What chips need besides ----

  // Takes cuBLAS's workspace for this thread's handle and a stream, if it is the first matrix
  // product there, and keeps it as long as the card is.
  void use_cublas(allocator::StreamId stream);
  // cuBLASLt's besides: products with a bias.
  void use_cublaslt(allocator::StreamId stream);

  // ---- Random numbers ----

  // The card's default generator: a state of its own, and the CPU's numbers for the same seed.
  [[nodiscard]] const at::Generator& generator() const { return generator_; }

 private:
  class Relay;  // hands what happens on to recorder and observer
  void observe();
  [[nodiscard]] bool disturb(Bytes bytes);
  [[nodiscard]] allocator::BlockId take(Bytes bytes, allocator::StreamId stream);
  void take_workspace(allocator::StreamId stream, bool lt, const std::optional<Bytes>& size);
  [[noreturn]] void refuse(Bytes bytes, std::unique_lock<std::mutex> lock, bool injected);
  [[nodiscard]] allocator::OutOfMemory injected_refusal(Bytes bytes);
  [[nodiscard]] Bytes used_by_others() const;
  void publish();
  void settle();
  void report(std::uint64_t address, std::int64_t change) const;

  const CardOptions options_;
  std::atomic<Mode> mode_;
  std::atomic<Rules> rules_;
  std::atomic<bool> slow_way_;
  mutable std::mutex mutex_;  // of all that follows but the atomics and the generator
  allocator::CachingAllocator allocator_;
  std::shared_ptr<SharedBox> box_;
  double memory_fraction_;
  Bytes published_;          // to the box
  Bytes used_by_neighbour_;  // as set_used_by_others says
  Bytes used_by_injection_;  // as the injector says
  std::int64_t injected_ooms_ = 0;
  std::uint64_t requests_ = 0;
  std::optional<allocator::OutOfMemory> last_out_of_memory_;
  std::unique_ptr<Relay> relay_;
  Injector injector_;
  std::atomic<trace::Recorder*> recorder_{nullptr};
  std::atomic<Observer*> observer_{nullptr};
  // By handle, stream and whether it is cuBLASLt's.
  std::set<std::tuple<int, allocator::StreamId, bool>> cublas_workspaces_;
  std::atomic<std::uint64_t> values_read_{0};
  std::atomic<std::uint64_t> decided_by_unknown_{0};
  at::Generator generator_;
};

// Where a storage, or the memory under a tensor, lies in the card's allocator, as its trace has it;
// nothing: it lies on no card, or has no bytes.
[[nodiscard]] std::optional<std::uint64_t> address_of(const c10::Storage& storage);
[[nodiscard]] std::optional<std::uint64_t> address_of(const at::TensorBase& tensor);

}  // namespace headroom::sim
