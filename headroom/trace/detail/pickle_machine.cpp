#include "headroom/trace/detail/pickle_machine.h"

#include <algorithm>
#include <array>
#include <optional>

namespace headroom::trace::pickle {
namespace {

constexpr std::uint64_t kMostPairs = 256;                // of an OrderedDict
constexpr std::uint64_t kGaps = std::uint64_t{1} << 20;  // in the memo

// The functions that are understood, by their effect on their arguments.
enum class Function : std::uint64_t { first_argument, ordered_dict };

std::optional<Function> known_function(std::string_view module, std::string_view name) {
  if (module == "collections" && name == "OrderedDict") return Function::ordered_dict;
  const bool gives_its_list =
      name == "build_intlist" || name == "build_doublelist" || name == "build_boollist";
  if (module == "torch.jit._pickle" && (name == "restore_type_tag" || gives_its_list))
    return Function::first_argument;
  return {};
}

}  // namespace

// ---- Faults ----

void Machine::fault(const std::string& expected, std::string_view received,
                    std::string_view to_try) const {
  source_.fault(at_, expected, std::string(received), to_try);
}

void Machine::refuse(std::string_view what) const {
  fault("plain values only: Headroom refuses to run code that is in a file", what,
        "a snapshot as torch.cuda.memory._dump_snapshot writes it");
}

void Machine::check_memory() const {
  const std::uint64_t used = tree_.bytes() + stack_.capacity() * sizeof(Value) +
                             memo_.capacity() * sizeof(Value) + memo_.capacity() / 8;
  if (used <= limits_.base_bytes) return;
  const std::uint64_t allowed =
      limits_.base_bytes + limits_.bytes_for_each * (source_.offset() + 1);
  if (used > std::min(allowed, limits_.most_bytes))
    fault("a pickle whose values take at most " +
              std::to_string(std::min(allowed, limits_.most_bytes)) + " bytes up to here",
          std::to_string(used) + " bytes");
}

// ---- The stack ----

void Machine::need(std::size_t values) const {
  if (stack_.size() - floor() < values) fault("a value for the operation", "none on the stack");
}

Value Machine::pop() {
  need(1);
  const Value value = stack_.back();
  stack_.pop_back();
  return value;
}

Value Machine::top() const {
  need(1);
  return stack_.back();
}

void Machine::open_mark() {
  if (marks_.size() == limits_.depth)
    fault("values nested at most " + std::to_string(limits_.depth) + " deep", "deeper ones");
  marks_.push_back({stack_.size(), at_});
}

std::span<const Value> Machine::above_mark() {
  if (marks_.empty()) fault("an open mark", "none");
  const std::size_t height = marks_.back().height;
  marks_.pop_back();
  return std::span(stack_).subspan(height);
}

// ---- Containers ----

Value Machine::container(Type type, std::span<const Value> items, std::uint64_t offset) {
  if (type == Type::dict) check_pairs(items);
  const Value made = tree_.make_container(type, offset);
  if (type == Type::dict)
    tree_.set_items(made, items);
  else
    tree_.append(made, items);
  return made;
}

void Machine::check_pairs(std::span<const Value> pairs) const {
  if (pairs.size() % 2 != 0) fault("a value for each key of a dict", "a key without one");
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const Type type = pairs[i].type();
    if (type == Type::list || type == Type::dict || type == Type::set)
      fault("a key of a dict that is text or a number", "a list, dict or set");
  }
}

void Machine::tuple_of(std::size_t items) {
  need(items);
  const auto values = std::span<const Value>(stack_).last(items);
  const Value made = container(Type::tuple, values, at_);
  drop(values);
  push(made);
}

void Machine::append(Value container, std::span<const Value> items, Type type) {
  if (container.type() != type) fault("a list or set to add to", "something else");
  tree_.append(container, items);
}

void Machine::set_items(Value dict, std::span<const Value> pairs) {
  check_pairs(pairs);
  if (dict.type() != Type::dict) fault("a dict to add to", "something else");
  tree_.set_items(dict, pairs);
}

// The value right below `items`: the container that they are added to.
Value Machine::below(std::span<const Value> items) const {
  need(items.size() + 1);
  return stack_[stack_.size() - items.size() - 1];
}

void Machine::append_above_mark(Type type) {
  const auto items = above_mark();
  append(below(items), items, type);
  drop(items);
}

void Machine::set_items_above_mark() {
  const auto pairs = above_mark();
  set_items(below(pairs), pairs);
  drop(pairs);
}

void Machine::append() {
  const Value item = pop();
  append(top(), {&item, 1}, Type::list);
}

void Machine::set_item() {
  const Value value = pop();
  const std::array pair{pop(), value};
  set_items(top(), pair);
}

void Machine::container_from_above_mark(Type type) {
  const std::uint64_t began = marks_.empty() ? at_ : marks_.back().offset;
  const auto items = above_mark();
  const Value made = container(type, items, began);
  drop(items);
  push(made);
}

// ---- Functions, which are never called ----

void Machine::function(std::string_view module, std::string_view name) {
  const auto known = known_function(module, name);
  if (!known) refuse(std::string(module) + "." + std::string(name));
  push({Type::function, static_cast<std::uint64_t>(*known)});
}

void Machine::stack_function() {
  const Value name = pop();
  const Value module = pop();
  if (name.type() != Type::text || module.type() != Type::text)
    fault("the name of a function", "something else");
  function(tree_.text(module), tree_.text(name));
}

void Machine::reduce() {
  const Value arguments = pop();
  const Value called = pop();
  if (called.type() != Type::function) refuse("a call");
  if (arguments.type() != Type::tuple) fault("a tuple of arguments", "something else");
  if (called.payload() == static_cast<std::uint64_t>(Function::ordered_dict)) {
    push(ordered_dict(arguments));
    return;
  }
  Value first;
  if (!tree_.items(arguments).next(first)) fault("an argument", "none");
  push(first);
}

// Makes the dict from no argument or from a list of pairs.
Value Machine::ordered_dict(Value arguments) {
  std::vector<Value> pairs;
  Value list;
  Value pair;
  if (tree_.items(arguments).next(list)) {
    if (tree_.size(list) > kMostPairs)
      fault("an OrderedDict of a few keys", std::to_string(tree_.size(list)));
    for (Items items = tree_.items(list); items.next(pair);) {
      Value part;
      Items parts = tree_.items(pair);
      for (int i = 0; i < 2 && parts.next(part); ++i) pairs.push_back(part);
    }
  }
  return container(Type::dict, pairs, at_);
}

// ---- The memo ----

void Machine::get(std::uint64_t number) {
  if (number >= memo_.size() || !is_in_memo_[number])
    fault("a value in the memo", "number " + std::to_string(number) + ", which is not in it");
  push(memo_[number]);
}

void Machine::put(std::uint64_t number) {
  // Writers count up. Those that join separately written parts, like ours, leave gaps for a while.
  const std::uint64_t most = kGaps + at_;
  if (number > most) fault("a memo number up to " + std::to_string(most), std::to_string(number));
  const Value value = top();
  if (number >= memo_.size()) {
    memo_.resize(number + 1);
    is_in_memo_.resize(number + 1);
  }
  memo_[number] = value;
  is_in_memo_[number] = true;
}

}  // namespace headroom::trace::pickle
