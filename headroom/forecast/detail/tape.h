// Counts the memory of a forward and a backward pass without running them. A value is a size; an
// operation says what it allocates, what it keeps for the backward pass and what it needs there.
// The rules are those of PyTorch's autograd engine: a node runs after all nodes that use its
// results, gradients that meet are added in place if nothing else holds the first, and a parameter
// takes over the first gradient that it gets.
//
//   Tape tape(Tape::Options{});
//   Parameter& weight = tape.parameter(4096, 4096, Type::bfloat16);
//   const Value x = tape.make(2048 * 4096, Type::bfloat16);
//   Value y = product(tape, x, tape.use(weight), {}, 4096, 4096);   // operators.h
//   tape.backward(std::move(y));
//   tape.peak(Phase::backward).rounded;
//
// Values are handles that count their owners, as Python's do, so a description of a model reads
// like the model. Equal layers do not all run: `repeat` runs three and counts the rest.
//
// Parameters are not counted here: they stay all the time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/forecast/effort.h"
#include "headroom/gpu/profile.h"

namespace headroom::forecast::detail {

class Tape;
struct Node;
struct Parameter;

enum class Type : std::uint8_t { float32, bfloat16, float16, int64, boolean };
[[nodiscard]] std::int64_t size_of(Type type);
[[nodiscard]] std::int64_t rounded(std::int64_t bytes);  // as PyTorch's allocator rounds them
[[nodiscard]] Type promoted(Type a, Type b);             // of two floating-point types

// Thrown when bytes could overflow 64 bits, which is more than any machine has.
struct TooLarge {};
inline constexpr int kMostBytesPower = 56;
inline void check_bytes(double bytes) {
  if (!(bytes <= static_cast<double>(std::int64_t{1} << kMostBytesPower))) throw TooLarge{};
}

enum class Phase : std::uint8_t { forward, backward, optimizer };

// Requested bytes by purpose; `rounded` is their sum as PyTorch's allocator rounds them.
struct Held {
  std::int64_t activations = 0, temporaries = 0, gradients = 0, rounded = 0;

  Held& operator+=(const Held& other);
  friend Held operator+(Held a, const Held& b) { return a += b; }
  friend Held operator-(const Held& a, const Held& b) { return a + b * -1; }
  friend Held operator*(Held a, std::int64_t times);
};

struct Storage {
  Tape* tape;
  std::int64_t bytes;
  std::int32_t owners;
  std::int64_t Held::*part;
};

// The destination of a gradient: the operation that made a value, or a parameter.
struct Edge {
  Node* node = nullptr;
  Parameter* parameter = nullptr;
  int slot = 0;
  explicit operator bool() const { return node != nullptr || parameter != nullptr; }
};

class Value {
 public:
  Value() = default;
  Value(Storage* storage, std::int64_t count, Type type);
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value() { reset(); }
  void reset();

  // False for an empty value. A parameter or an input has no storage: its memory is not counted.
  [[nodiscard]] explicit operator bool() const { return count != 0; }
  [[nodiscard]] bool has_gradient() const { return static_cast<bool>(edge); }
  // No other value shares the memory.
  [[nodiscard]] bool is_only_owner() const { return storage_ != nullptr && storage_->owners == 1; }
  [[nodiscard]] Storage* storage() const { return storage_; }

  std::int64_t count = 0;  // elements
  Type type = Type::float32;
  Edge edge = {};
  // [batch, heads, tokens, width] with memory laid out by token: a matrix product copies it first.
  bool by_token = false;

 private:
  Storage* storage_ = nullptr;
};

struct Parameter {
  std::int64_t rows = 1, columns = 0;  // a vector has one row
  Type type = Type::float32;
  bool trained = true;
  std::int64_t kernel = 0;  // of a convolution: the size of its last two dimensions
  double bytes_each = 0;    // 0: by `type`; else those of a quantised weight
  std::int64_t times = 1;   // how many equal parameters it stands for
  int module = 0;

  Value gradient = {};  // set once a backward pass has made one
  Value arriving = {};  // the sum, until all uses have sent theirs
  int uses = 0;         // those whose gradients are still to come
  Value low = {};       // autocast's low-precision copy
  [[nodiscard]] std::int64_t count() const { return rows * columns; }
  [[nodiscard]] bool is_matrix() const { return rows > 1 || kernel > 0; }
  [[nodiscard]] std::int64_t bytes() const;
};

using Gradients = std::array<Value, 3>;  // one for each result of an operation
// May release the gradients before it returns.
using Backward = std::function<void(Tape&, Gradients&)>;

struct Node {
  enum class Role : std::uint8_t { operation, repeat_begins, repeat_ends };
  Role role = Role::operation;
  std::int64_t more = 0;  // repetitions that were not run
  int module = 0;         // that recorded it
  Backward backward;
  Gradients arrived;
};

// Nodes keep their addresses while others are pushed and popped; popped nodes are reused.
class NodeStack {
 public:
  [[nodiscard]] Node& push();
  void pop() { --size_; }
  [[nodiscard]] Node& top() { return at(size_ - 1); }
  [[nodiscard]] std::size_t size() const { return size_; }
  void clear();

 private:
  static constexpr std::size_t kBlock = 64;
  using Block = std::array<Node, kBlock>;
  [[nodiscard]] Node& at(std::size_t i) { return (*blocks_[i / kBlock])[i % kBlock]; }
  std::vector<std::unique_ptr<Block>> blocks_;
  std::size_t size_ = 0;
};

class Tape {
 public:
  struct Options {
    bool records = true;               // build a graph for the backward pass
    bool autocast = false;             // some operators convert half precision to float
    bool gradients_are_there = false;  // left by an earlier step or micro-batch
    bool steps_in_backward = false;    // each parameter is updated, and its gradient freed, at once
    std::function<std::int64_t(const Parameter&)> bytes_of_step = {};  // temporaries of that update
    // The share of a complete gradient that stays here; the rest goes to other cards or the host.
    double kept_share_of_gradients = 1;
    // Null if unknown; sums are then counted without the scratch memory of their kernels.
    const gpu::DeviceProfile* chip = nullptr;
    bool keeps_activations = true;  // false: layers that are not running keep theirs on the host
  };
  explicit Tape(Options options) : options_(std::move(options)) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape();

  // ---- For descriptions of operators ----

  [[nodiscard]] Value make(std::int64_t count, Type type);
  // Memory that a kernel needs only while it runs.
  void touch(std::int64_t bytes);
  [[nodiscard]] const gpu::DeviceProfile* chip() const { return options_.chip; }
  // Of the running module.
  [[nodiscard]] Effort& effort() { return *effort_; }
  // Of a module, in the forward or the backward pass.
  [[nodiscard]] const Effort& effort_of(int module, Phase phase) const {
    return efforts_[static_cast<std::size_t>(module)][static_cast<std::size_t>(phase)];
  }
  // The next parameter. A layer that runs again gets its own parameters again.
  Parameter& parameter(std::int64_t rows, std::int64_t columns, Type type, bool trained = true);
  [[nodiscard]] Value use(Parameter& parameter);  // with an edge to it, if it is trained
  [[nodiscard]] bool records() const { return options_.records && !paused_; }
  [[nodiscard]] bool learns(const Value& x) const { return records() && x.has_gradient(); }
  [[nodiscard]] bool autocast() const { return options_.autocast; }
  // Records a node for `result` (or for several results); its backward sends gradients along edges.
  void record(Value& result, Backward backward);
  Node& record(Backward backward);
  void send(const Edge& edge, Value gradient);

  // ---- Structure ----

  // Runs `unit` `times` times, each time on the previous result. `same_parameters`: all repetitions
  // use those of the first.
  using Unit = std::function<Value(const Value&)>;
  [[nodiscard]] Value repeat(std::int64_t times, const Unit& unit, Value states,
                             bool same_parameters = false);
  // A part that keeps only its input and runs again in the backward pass.
  [[nodiscard]] Value checkpoint(const Unit& part, const Value& x, bool reentrant);

  // ---- Running ----

  [[nodiscard]] Phase phase() const { return phase_; }
  void backward(Value loss);
  void forget_low_copies();

  [[nodiscard]] const Held& live() const { return live_; }
  [[nodiscard]] const Held& peak(Phase phase) const {
    return peaks_[static_cast<std::size_t>(phase)];
  }
  [[nodiscard]] std::deque<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] std::int64_t activations_elsewhere() const { return elsewhere_; }
  // To take the parameters from this one on once more.
  [[nodiscard]] std::size_t next_parameter() const { return cursor_; }
  void rewind(std::size_t parameter) { cursor_ = parameter; }
  void set_module(int module);
  void free(Storage* storage);

 private:
  struct Segment {
    Held before, peak_before;
    Effort effort;  // of the running module
  };
  void note_peak();
  [[nodiscard]] Segment begin_segment();
  void end_segment(const Segment& segment, std::int64_t more);
  [[nodiscard]] Held skipped(const Held& change, std::int64_t more);
  void run_backward(std::size_t from);
  void run(Node& node);
  void deliver();
  void deliver(const Edge& edge, Value gradient);
  void arrive(Value& place, Value gradient);
  void accumulate(Parameter& parameter);
  void run_again(const Unit& part, const Value& x, Value gradient, bool reentrant);
  void shrink(Storage& gradient);
  void reclassify(const Value& value, std::int64_t Held::*part);

  Options options_;
  Held live_;
  std::array<Held, 3> peaks_;
  Phase phase_ = Phase::forward;
  bool paused_ = false;  // no graph is recorded
  std::vector<std::pair<Edge, Value>> outbox_;
  NodeStack nodes_;
  std::deque<Parameter> parameters_;
  std::size_t cursor_ = 0;  // the next parameter to take
  std::int64_t times_ = 1;  // how many layers the running one stands for
  int module_ = 0;
  std::int64_t elsewhere_ = 0;
  double numbers_ = 0;                            // elements of all parameters
  std::deque<std::array<Effort, 2>> efforts_{1};  // by module and phase
  Effort* effort_ = &efforts_.front().front();
  std::vector<Segment> segments_;
  std::vector<Storage*> unused_;
  std::deque<Storage> storages_;
};

}  // namespace headroom::forecast::detail
