// Memory that each operator of a training step keeps and needs on a card, in the order of their
// execution, and the operators that CUDA and the CPU compose differently.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/sim/observer.h"
#include "tests/peers/replaced.h"

namespace headroom::nets {

constexpr std::size_t kNever = ~std::size_t{0};

struct Call {
  std::string name;  // "aten::native_dropout"
  // Bytes that CUDA keeps beyond the CPU according to the rules' table; empty if it has no row.
  std::optional<std::int64_t> difference;
};

struct Block {
  std::int64_t bytes = 0;
  std::size_t call = kNever;   // the operator that made it; never: the program did, between two
  std::size_t made = 0;        // in events
  std::size_t freed = kNever;  // in events
  bool temporary = false;      // freed before its operator returned
};

// A call of a function with a row among the replaced ones, for the arguments of that row. Its
// backward pass consists of the nodes that it made.
struct Function {
  std::string name;
  OnCuda on_cuda;
  std::vector<std::size_t> results, saved_arguments;  // their blocks, as far as they are watched
  // In events. The first and the last of backward, which may not be asked for: then never.
  std::size_t begin = 0, end = kNever, backward_begin = kNever, backward_end = kNever;
  std::uint64_t thread = 0;
  std::int64_t first_node = 0, last_node = -1;
};

struct Event {
  enum class Kind { call, make, free, function, function_end, backward, backward_end };
  Kind kind = Kind::call;
  std::size_t of = 0;  // a call, a block or a function
};

// Operators inside an operator's rule belong to that one. Threads take turns, as the autograd
// engine's and the program's do; one observer at a time in a process.
class Calls final : public sim::Observer {
 public:
  // `alive`: the bytes on the card when watching begins.
  explicit Calls(std::int64_t alive);
  ~Calls() override { stop(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void stop();

  void on_operator(const sim::OperatorCall& call) override;
  void on_event(const allocator::AllocatorEvent& allocator_event) override;

  [[nodiscard]] std::int64_t alive_before() const { return alive_before_; }
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  [[nodiscard]] const std::vector<Call>& all() const { return calls_; }
  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }

 private:
  void begin_function(const at::RecordFunction& record);
  void end_function(const at::RecordFunction& record);
  std::size_t function_of_node(const at::RecordFunction& record) const;
  void begin_node(const at::RecordFunction& record);
  void end_node(const at::RecordFunction& record);
  void make(std::uint64_t address, std::int64_t bytes);
  void free(std::uint64_t address);
  void add(Event::Kind kind, std::size_t of) { events_.push_back({kind, of}); }
  [[nodiscard]] std::vector<std::size_t> blocks_of(const c10::IValue& value) const;

  std::int64_t alive_before_;
  std::vector<Event> events_;
  std::vector<Call> calls_;
  std::vector<Block> blocks_;
  std::vector<Function> functions_;
  std::map<std::uint64_t, std::size_t> block_at_;
  std::size_t open_function_ = kNever;
  at::CallbackHandle functions_callback_ = 0, nodes_callback_ = 0;
};

}  // namespace headroom::nets
