// Memory of a forward and a backward pass, counted without running them: a value is a size, an
// operation says what it allocates, what it keeps for the backward pass and what it needs there.
// The rules are those of PyTorch's autograd engine: a node runs when all that follows it has run,
// gradients that meet are added in place where nobody else holds the first, a parameter takes over
// the first gradient it gets.
//
//   Tape tape;
//   Parameter& weight = tape.parameter(4096, 4096);
//   Value x = tape.make(2048 * 4096, Type::bfloat16);
//   Value y = linear(tape, x, weight, nullptr);   // operators.h
//   tape.backward(y);
//   tape.peak(Phase::backward).rounded;
//
// Values are handles that count their owners, as Python's do; a description of a model reads like
// the model. Layers that are alike are not run one by one: `repeat` runs three and counts the rest.
//
// Parameters are not part of what is counted here: they are there all the time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/formula/effort.h"
#include "headroom/gpu/profile.h"

namespace headroom::formula::detail {

class Tape;
struct Node;
struct Parameter;

enum class Type : std::uint8_t { float32, bfloat16, float16, int64, boolean };
[[nodiscard]] std::int64_t size_of(Type type);
[[nodiscard]] std::int64_t rounded(std::int64_t bytes);  // as PyTorch's allocator hands them out
[[nodiscard]] Type promoted(Type a, Type b);             // of two kinds of real numbers

// Thrown where bytes could not be counted in 64 bits: so much no machine has.
struct TooLarge {};
inline constexpr int kMostBytesPower = 56;
inline void check_bytes(double bytes) {
  if (!(bytes <= static_cast<double>(std::int64_t{1} << kMostBytesPower))) throw TooLarge{};
}

enum class Phase : std::uint8_t { forward, backward, optimizer };

// Bytes by what they are, as asked for; `rounded` is their sum as PyTorch's allocator hands them
// out.
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

// Where a gradient goes: to the operation that made a value, or to a parameter.
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

  // Of a value that is always there, a parameter or an input, nothing is counted.
  [[nodiscard]] explicit operator bool() const { return count != 0; }
  [[nodiscard]] bool has_gradient() const { return static_cast<bool>(edge); }
  // No other value shares the memory.
  [[nodiscard]] bool is_only_owner() const { return storage_ != nullptr && storage_->owners == 1; }
  [[nodiscard]] Storage* storage() const { return storage_; }

  std::int64_t count = 0;  // elements
  Type type = Type::float32;
  Edge edge = {};
  // [batch, heads, tokens, width], where memory is by token: a product of matrices copies it first.
  bool by_token = false;

 private:
  Storage* storage_ = nullptr;
};

struct Parameter {
  std::int64_t rows = 1, columns = 0;  // a vector has one row
  Type type = Type::float32;
  bool trained = true;
  std::int64_t kernel = 0;  // a convolution's: its last two sizes
  double bytes_each = 0;    // 0: those of the type; else a quantised weight's
  std::int64_t times = 1;   // how many there are like it
  int module = 0;

  Value gradient = {};  // once a backward pass has made one
  Value arriving = {};  // before all that use it have sent theirs
  int uses = 0;         // whose gradients are still to come
  Value low = {};       // autocast's copy
  [[nodiscard]] std::int64_t count() const { return rows * columns; }
  [[nodiscard]] bool is_matrix() const { return rows > 1 || kernel > 0; }
  [[nodiscard]] std::int64_t bytes() const;
};

using Gradients = std::array<Value, 3>;  // of an operation's results
// It may let go of the gradients before it returns.
using Backward = std::function<void(Tape&, Gradients&)>;

struct Node {
  enum class Role : std::uint8_t { operation, repeat_begins, repeat_ends };
  Role role = Role::operation;
  std::int64_t more = 0;  // repetitions that were not run
  Backward backward;
  Gradients arrived;
};

// Nodes stay where they are while others are pushed and popped; their memory is used again.
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
    bool records = true;               // a graph for the backward pass
    bool autocast = false;             // some operators make floats of half precision
    bool gradients_are_there = false;  // from a step or a micro-batch before
    bool steps_in_backward = false;    // a parameter is updated, and its gradient gone, at once
    std::function<std::int64_t(const Parameter&)> bytes_of_step = {};  // what that needs besides
    // Of a gradient, what stays here once it is complete: the rest goes to other cards or the host.
    double kept_share_of_gradients = 1;
    // Null: not known; sums are then counted without the memory that their kernels take.
    const gpu::DeviceProfile* chip = nullptr;
    bool keeps_activations = true;  // false: layers that are not running keep theirs on the host
  };
  explicit Tape(Options options) : options_(std::move(options)) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape();

  // ---- What descriptions of operators use ----

  [[nodiscard]] Value make(std::int64_t count, Type type);
  // Memory that a kernel needs while it runs, beside what is held.
  void touch(std::int64_t bytes);
  [[nodiscard]] const gpu::DeviceProfile* chip() const { return options_.chip; }
  [[nodiscard]] Effort& effort() { return effort_; }
  // The next parameter. When a layer runs again it gets its own ones.
  Parameter& parameter(std::int64_t rows, std::int64_t columns, Type type, bool trained = true);
  [[nodiscard]] Value use(Parameter& parameter);  // with an edge to it, if it is trained
  [[nodiscard]] bool records() const { return options_.records && !paused_; }
  [[nodiscard]] bool learns(const Value& x) const { return records() && x.has_gradient(); }
  [[nodiscard]] bool autocast() const { return options_.autocast; }
  // A node for `result` (or several): its backward sends gradients along edges.
  void record(Value& result, Backward backward);
  Node& record(Backward backward);
  void send(const Edge& edge, Value gradient);

  // ---- Structure ----

  // `unit` so many times, each time with the states that the last one gave. `same_parameters`: all
  // have those of the first.
  using Unit = std::function<Value(const Value&)>;
  [[nodiscard]] Value repeat(std::int64_t times, const Unit& unit, Value states,
                             bool same_parameters = false);
  // A part that keeps its input alone and is run again in the backward pass.
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
  // To have the parameters from there once more.
  [[nodiscard]] std::size_t next_parameter() const { return cursor_; }
  void rewind(std::size_t parameter) { cursor_ = parameter; }
  void set_module(int module) { module_ = module; }
  void free(Storage* storage);

 private:
  struct Segment {
    Held before, peak_before;
    Effort effort;
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
  std::size_t cursor_ = 0;  // the parameter that is taken next
  std::int64_t times_ = 1;  // for how many layers the one that runs stands
  int module_ = 0;
  std::int64_t elsewhere_ = 0;
  double numbers_ = 0;  // of all parameters
  Effort effort_;
  std::vector<Segment> segments_;
  std::vector<Storage*> unused_;
  std::deque<Storage> storages_;
};

}  // namespace headroom::formula::detail
