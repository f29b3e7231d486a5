// The stack machine that executes a pickle: a stack with marks, and a memo. Its operations check
// their operands and refuse everything except making values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/detail/pickle_source.h"
#include "headroom/trace/detail/pickle_tree.h"
#include "headroom/trace/detail/unpickle.h"

namespace headroom::trace::pickle {

class Machine {
 public:
  // The input must outlive the machine.
  Machine(Input& input, const Limits& limits) : limits_(limits), source_(input) {}

  Source& source() { return source_; }
  Tree& tree() { return tree_; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  // Call before each operation. Faults of the operation name this offset.
  void begin_operation() { at_ = source_.offset(); }
  [[nodiscard]] std::uint64_t offset() const { return at_; }
  void check_memory() const;
  [[noreturn]] void fault(const std::string& expected, std::string_view received,
                          std::string_view to_try = {}) const;
  [[noreturn]] void refuse(std::string_view what) const;

  // ---- The stack ----
  void push(Value value) { stack_.push_back(value); }
  Value pop();
  Value top() const;
  void open_mark();
  void pop_mark() { drop(above_mark()); }

  // ---- Containers ----
  void push_container(Type type) { push(container(type, {}, at_)); }
  void tuple_of(std::size_t items);
  void append();
  void set_item();
  void append_above_mark(Type type);
  void set_items_above_mark();
  void container_from_above_mark(Type type);

  // ---- Functions, which are never called, and the memo ----
  void function(std::string_view module, std::string_view name);
  void stack_function();
  void reduce();
  void get(std::uint64_t number);
  void put(std::uint64_t number);
  void put_next() { put(memo_.size()); }

 private:
  struct Mark {
    std::size_t height;
    std::uint64_t offset;
  };

  // Height of the innermost open mark, below which no operation may reach.
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back().height; }
  void need(std::size_t values) const;
  // The values above the innermost mark. Closes the mark; the values stay on the stack until
  // drop().
  std::span<const Value> above_mark();
  void drop(std::span<const Value> values) { stack_.resize(stack_.size() - values.size()); }
  [[nodiscard]] Value below(std::span<const Value> items) const;

  Value container(Type type, std::span<const Value> items, std::uint64_t offset);
  void append(Value container, std::span<const Value> items, Type type);
  void set_items(Value dict, std::span<const Value> pairs);
  void check_pairs(std::span<const Value> pairs) const;
  Value ordered_dict(Value arguments);

  Limits limits_;
  Source source_;
  Tree tree_;
  std::vector<Value> stack_;
  std::vector<Mark> marks_;
  std::vector<Value> memo_;
  std::vector<bool> is_in_memo_;
  std::uint64_t at_ = 0;
};

}  // namespace headroom::trace::pickle
