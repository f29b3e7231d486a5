// One simulated GPU: the model of the caching allocator with a capacity, behind a lock, and the
// card's own mode, rule set, random state and streams.
//
//   Simulation box = simulate("2x24GiB");
//   Card& card = box.card(0);
//   at::Tensor x = at::empty({1024, 1024}, card.device());
//   card.statistics().allocated_bytes.all.peak;  // 4194304
//
// Threads: call everything from any thread. A card outlives its simulation for as long as a tensor
// lies on it.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/observer.h"
#include "headroom/trace/recorder.h"

namespace headroom::sim {

class SharedBox;
namespace detail {
class StreamOrder;
}

enum class Mode : std::uint8_t {
  shape_only,  // tensors have no data; an unknown number reads as zero
  compute,     // tensors have host memory and operators run the CPU's kernels on it
};

// The name of a cuBLAS workspace's allocation, in trace::here and in traces.
inline constexpr std::string_view kWorkspace = "cuBLAS workspace";

// The most elements of a tensor whose values a shape-only card may know: 128 rows of 1,024 tokens.
// Position-by-position masks quickly exceed this, and programs do not branch on them.
inline constexpr std::int64_t kMostKnown = 1 << 17;
// The most bytes of a tensor from the host whose values it may know, of 32- or 64-bit integers or
// booleans: the edges of a graph, the labels of a batch.
inline constexpr std::size_t kMostKnownFromHost = 16 << 20;

// The device whose kernels' inner sizes a card follows: the tensors that they save, and their
// temporaries.
enum class Rules : std::uint8_t {
  cuda,
  cpu,  // to compare with tools that run on the CPU
};

// One allocation request, as an injector sees it.
struct Request {
  std::uint64_t number = 0;  // counts this card's allocations, from 1
  Bytes bytes;
  int card = 0;
  // The recorder's; unknown and 0 without a recorder.
  trace::Phase phase = trace::Phase::unknown;
  std::uint32_t step = 0;
};

// An injector's answer to a request.
struct Disturbance {
  Disturbance(bool refused = false,  // NOLINT(google-explicit-constructor): most only refuse
              std::optional<double> neighbour = {})
      : refuse(refused), neighbour_share(neighbour) {}
  bool refuse;  // with an out-of-memory, as if the card were full
  // From now on another process holds this share of the card's capacity. std::nullopt: nothing
  // changes.
  std::optional<double> neighbour_share;
};

// Called before every allocation, under the card's lock. It must not touch the card. injection.h
// has a set of injectors.
using Injector = std::function<Disturbance(const Request&)>;

struct CardOptions {
  int index = 0;
  std::string name = {};  // "NVIDIA GeForce RTX 4090"
  Bytes capacity = allocator::kUnlimited;
  Bytes context = {};  // CUDA context of the process, taken off the capacity from the start
  Mode mode = Mode::shape_only;
  Rules rules = Rules::cuda;
  allocator::Settings settings = {};
  const gpu::DeviceProfile* profile = nullptr;  // of its chip; null means no workspaces, and
                                                // attention as on an A100
  std::shared_ptr<SharedBox> box = nullptr;     // shared with other processes; null if private
  bool slow_way = false;                        // see Card::slow_way
  bool cublas_workspaces = true;  // allocated at the first matrix product, as by PyTorch on CUDA
  std::shared_ptr<detail::StreamOrder> stream_order = nullptr;  // null if streams are not checked
};

class Card : public std::enable_shared_from_this<Card> {
 public:
  // Create it by std::make_shared: tensors share the ownership of their card.
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
  // Both return the previous value. Tensors made in shape-only mode have no data later, either.
  Mode set_mode(Mode mode) { return mode_.exchange(mode); }
  Rules set_rules(Rules rules) { return rules_.exchange(rules); }

  // If true, a shape-only card runs an operator without a shape rule on the CPU, over zeros. That
  // is right for results whose shapes do not depend on values, and as slow as the CPU.
  [[nodiscard]] bool slow_way() const { return slow_way_.load(std::memory_order_relaxed); }
  bool set_slow_way(bool allowed) { return slow_way_.exchange(allowed); }

  // Checks the waits between streams (SimulationOptions::check_streams); null if not checked.
  [[nodiscard]] detail::StreamOrder* stream_order() const { return options_.stream_order.get(); }

  // Where the shape of a result depends on unknown values, such a share of a mask is taken for
  // true, and the places that topk, argsort, argmax and multinomial found for evenly spread.
  // std::nullopt: such an operator is refused.
  [[nodiscard]] std::optional<double> assume_true() const;
  void set_assume_true(std::optional<double> share) { assume_true_ = share.value_or(-1); }

  // ---- Memory ----

  // Throws c10::OutOfMemoryError with PyTorch's text, unless a rescuer frees memory for the request
  // (memory/rescue.h).
  [[nodiscard]] allocator::BlockId allocate(Bytes bytes, allocator::StreamId stream);
  // Throws UsageError for a block that is not allocated, such as one that was freed before.
  void free(allocator::BlockId block);
  void record_stream(allocator::BlockId block, allocator::StreamId stream);
  void empty_cache();
  void reset_peaks();
  void reset_accumulated();
  // As allocator::apply: settings of the allocator, from now on. Throws UsageError.
  void change_settings(std::string_view text);
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const;
  // Sets the memory that neighbours hold on the card now, in addition to those of a shared box.
  void set_used_by_others(Bytes used);
  // Stops talking to the shared box: its simulation has ended.
  void leave_box();

  [[nodiscard]] allocator::Statistics statistics() const;
  [[nodiscard]] Bytes free_bytes() const;
  [[nodiscard]] Bytes capacity() const { return options_.capacity; }
  [[nodiscard]] allocator::BlockInfo block(allocator::BlockId block) const;
  [[nodiscard]] std::vector<allocator::SegmentInfo> snapshot() const;
  // The last refusal. std::nullopt if there was none.
  [[nodiscard]] std::optional<allocator::OutOfMemory> last_out_of_memory() const;
  // A copy of the allocator in its current state, to try requests on.
  [[nodiscard]] allocator::CachingAllocator fork() const;

  // ---- Watching and disturbing ----

  // Sends every event of the card to the recorder, until null is given. The recorder must live that
  // long.
  void record(trace::Recorder* recorder);
  // The same for an observer. Returns the previous one.
  Observer* observe(Observer* observer);
  [[nodiscard]] Observer* observer() const { return observer_.load(std::memory_order_relaxed); }
  // Installs the injector until an empty one is given, and ends the previous one's neighbour.
  // Returns the previous one.
  Injector inject(Injector injector);
  // Number of allocation requests so far.
  [[nodiscard]] std::uint64_t requests() const;

  // Unknown values that the program read from the card (`.item()`, copies to the host in shape-only
  // mode): each read as if every unknown number were zero.
  [[nodiscard]] std::uint64_t values_read_as_zero() const { return values_read_.load(); }
  // Those of them that the program read alone, by `.item()`, `if` or `equal`, and may decide by.
  [[nodiscard]] std::uint64_t decided_by_unknown() const { return decided_by_unknown_.load(); }
  void note_value_read() { values_read_.fetch_add(1, std::memory_order_relaxed); }
  void note_decision() {
    note_value_read();
    decided_by_unknown_.fetch_add(1, std::memory_order_relaxed);
  }

  // Counts an assumption, and reports it to the observer.
  void note_assumption(const std::string& what);
  [[nodiscard]] std::uint64_t assumptions() const { return assumptions_.load(); }

  // ---- cuBLAS's workspaces: taken by device/cublas.h, held as long as the card lives ----

  struct Workspace {
    int handle = 0;
    allocator::StreamId stream = 0;
    bool lt = false;  // cuBLASLt's
    auto operator<=>(const Workspace&) const = default;
  };
  [[nodiscard]] bool has_workspace(const Workspace& workspace) const;
  void take_workspace(const Workspace& workspace, Bytes bytes);

  // ---- Random numbers ----

  // The card's default generator: its own state, and the CPU's numbers for the same seed.
  [[nodiscard]] const at::Generator& generator() const { return generator_; }

 private:
  class Relay;  // passes events on to recorder and observer
  void observe();
  [[nodiscard]] bool disturb(Bytes bytes);
  [[nodiscard]] allocator::BlockId request(Bytes bytes, allocator::StreamId stream);
  [[nodiscard]] allocator::BlockId take(Bytes bytes, allocator::StreamId stream);
  [[noreturn]] void refuse(Bytes bytes, std::unique_lock<std::mutex> lock, bool injected);
  [[nodiscard]] allocator::OutOfMemory injected_refusal(Bytes bytes);
  [[nodiscard]] Bytes used_by_others() const;
  void publish();
  void settle();
  void wait_for_releases();
  void report(std::uint64_t address, std::int64_t change) const;

  const CardOptions options_;
  std::atomic<Mode> mode_;
  std::atomic<Rules> rules_;
  std::atomic<bool> slow_way_;
  mutable std::mutex mutex_;  // guards all members below, except atomics and generator
  allocator::CachingAllocator allocator_;
  std::shared_ptr<SharedBox> box_;
  double memory_fraction_;
  std::int64_t releases_ = 0;  // to the driver, as wait_for_releases saw them last
  Bytes published_;            // as last published to the box
  Bytes used_by_neighbour_;    // by set_used_by_others
  Bytes used_by_injection_;    // by the injector
  std::int64_t injected_ooms_ = 0;
  std::uint64_t requests_ = 0;
  std::optional<allocator::OutOfMemory> last_out_of_memory_;
  std::unique_ptr<Relay> relay_;
  Injector injector_;
  std::atomic<trace::Recorder*> recorder_{nullptr};
  std::atomic<Observer*> observer_{nullptr};
  std::set<Workspace> workspaces_;
  std::atomic<std::uint64_t> values_read_{0};
  std::atomic<double> assume_true_{-1};
  std::atomic<std::uint64_t> assumptions_{0};
  std::atomic<std::uint64_t> decided_by_unknown_{0};
  at::Generator generator_;
};

}  // namespace headroom::sim
