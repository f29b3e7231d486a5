#include "headroom/trace/detail/unpickle.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "headroom/trace/detail/fault.h"
#include "headroom/trace/detail/pickle_source.h"
#include "headroom/trace/detail/pickle_text.h"

namespace headroom::trace::pickle {
namespace {

constexpr std::uint64_t kLongestLine = std::uint64_t{1} << 20;  // of protocol 0, texts left out
constexpr std::uint64_t kMostPairs = 256;                       // of an OrderedDict
constexpr std::uint64_t kGaps = std::uint64_t{1} << 20;         // in the memo
constexpr int kNewestProtocol = 5;

// Operations of a kind share a function below.
enum class Group : std::uint8_t { unknown, number, text, container, memo, other };

constexpr std::array<Group, 256> kGroups = [] {
  using namespace std::string_view_literals;
  std::array<Group, 256> groups{};
  const auto put = [&](Group group, std::string_view operations) {
    for (const char c : operations) groups[static_cast<unsigned char>(c)] = group;
  };
  put(Group::number, "NJKMILFG\x88\x89\x8a\x8b"sv);
  put(Group::text, "UXTCBSV\x8c\x8d\x8e\x96"sv);
  put(Group::container, "])}aesudlt\x85\x86\x87\x8f\x90\x91"sv);
  put(Group::memo, "hjqrgp\x94"sv);
  put(Group::other, "(.012cRbioPQ\x80\x81\x82\x83\x84\x92\x93\x95\x97\x98"sv);
  return groups;
}();

// The functions that are understood, as what they do to their arguments.
enum class Function : std::uint64_t { first_argument, ordered_dict };

std::optional<Function> known_function(std::string_view module, std::string_view name) {
  if (module == "collections" && name == "OrderedDict") return Function::ordered_dict;
  const bool gives_its_list =
      name == "build_intlist" || name == "build_doublelist" || name == "build_boollist";
  if (module == "torch.jit._pickle" && (name == "restore_type_tag" || gives_its_list))
    return Function::first_argument;
  return {};
}

// The machine that a pickle is a program for: a stack, marks in it, and a memo.
class Machine {
 public:
  Machine(Input& input, const Limits& limits) : source_(input), limits_(limits) {}

  Tree run() {
    while (step()) check_memory();
    return std::move(tree_);
  }

 private:
  bool step();
  void step_number(std::uint8_t op);
  void step_text(std::uint8_t op);
  void step_container(std::uint8_t op);
  void step_memo(std::uint8_t op);
  void step_other(std::uint8_t op);

  // ---- The stack ----
  void push(Value value) { stack_.push_back(value); }
  // The first value after the innermost open mark, above which no operation may reach.
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back().height; }
  void need(std::size_t values) const;
  Value pop();
  Value& top();
  void pop_one_or_mark();
  void open_mark();
  // What is above the innermost mark, which is closed; it stays on the stack until drop().
  std::span<const Value> above_mark();
  void drop(std::span<const Value> values) { stack_.resize(stack_.size() - values.size()); }

  // ---- What operations do ----
  Value container(Type type, std::span<const Value> items, std::uint64_t offset);
  Value dict(std::span<const Value> pairs, std::uint64_t offset);
  void tuple_of(std::size_t items);
  void append(Value container, std::span<const Value> items, Type type);
  void set_items(Value dict, std::span<const Value> pairs);
  void check_pairs(std::span<const Value> pairs) const;
  [[nodiscard]] Value below(std::span<const Value> items) const;
  void append_above_mark(Type type);
  void set_items_above_mark();
  void from_above_mark(std::uint8_t op);
  void function(std::string_view module, std::string_view name);
  void stack_function();
  void reduce();
  Value ordered_dict(Value arguments);
  void get(std::uint64_t number);
  void put(std::uint64_t number);
  void integer(const SpelledInteger& spelled, std::string_view text);
  void integer_line();
  void long_line();
  void long_integer(std::uint64_t bytes);
  void float_line();
  void text(std::uint64_t size, Type type) { push(tree_.make_text(type, take_text(size))); }
  std::string_view take_text(std::uint64_t size) {
    return source_.bytes(size, limits_.most_bytes / 4);
  }
  std::uint64_t number_line();

  void check_memory();
  [[noreturn]] void fault(const std::string& expected, std::string_view received,
                          std::string_view to_try = {}) const;
  [[noreturn]] void refuse(std::string_view what) const;

  struct Mark {
    std::size_t height;
    std::uint64_t offset;
  };

  Source source_;
  Limits limits_;
  Tree tree_;
  std::vector<Value> stack_;
  std::vector<Mark> marks_;
  std::vector<Value> memo_;
  std::vector<bool> is_in_memo_;
  std::uint64_t at_ = 0;  // where the operation at work began
};

// ---- Faults ----

void Machine::fault(const std::string& expected, std::string_view received,
                    std::string_view to_try) const {
  source_.fault(at_, expected, std::string(received), to_try);
}

void Machine::refuse(std::string_view what) const {
  fault("plain values only: Headroom refuses to run code that is in a file", what,
        "a snapshot as torch.cuda.memory._dump_snapshot writes it");
}

void Machine::check_memory() {
  const std::uint64_t used = tree_.bytes() + stack_.capacity() * sizeof(Value) +
                             memo_.capacity() * sizeof(Value) + memo_.capacity() / 8;
  if (used <= limits_.base_bytes) return;
  const std::uint64_t allowed =
      limits_.base_bytes + limits_.bytes_for_each * (source_.offset() + 1);
  if (used > std::min(allowed, limits_.most_bytes))
    fault("a pickle whose values take at most " +
              std::to_string(std::min(allowed, limits_.most_bytes)) + " bytes by here",
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

Value& Machine::top() {
  need(1);
  return stack_.back();
}

void Machine::pop_one_or_mark() {
  if (!marks_.empty() && stack_.size() == floor()) {
    marks_.pop_back();
  } else {
    pop();
  }
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
  const Value made = tree_.make_container(type, offset);
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

Value Machine::dict(std::span<const Value> pairs, std::uint64_t offset) {
  check_pairs(pairs);
  const Value made = tree_.make_container(Type::dict, offset);
  tree_.set_items(made, pairs);
  return made;
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

// What lies right below these, where a container is to which they are added.
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

void Machine::from_above_mark(std::uint8_t op) {
  const std::uint64_t began = marks_.empty() ? at_ : marks_.back().offset;
  const auto items = above_mark();
  Value made;
  if (op == 'd') {
    made = dict(items, began);
  } else {
    const Type type = op == 'l' ? Type::list : op == 't' ? Type::tuple : Type::set;
    made = container(type, items, began);
  }
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

// From nothing, or from a list of pairs.
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
  return dict(pairs, at_);
}

// ---- The memo ----

void Machine::get(std::uint64_t number) {
  if (number >= memo_.size() || !is_in_memo_[number])
    fault("a value that was remembered", "number " + std::to_string(number) + ", which was not");
  push(memo_[number]);
}

void Machine::put(std::uint64_t number) {
  // Writers count up; those that put parts together, as ours does, leave gaps for a while.
  const std::uint64_t most = kGaps + at_;
  if (number > most)
    fault("a number of the memo up to " + std::to_string(most), std::to_string(number));
  const Value value = top();
  if (number >= memo_.size()) {
    memo_.resize(number + 1);
    is_in_memo_.resize(number + 1);
  }
  memo_[number] = value;
  is_in_memo_[number] = true;
}

// ---- Numbers ----

void Machine::integer(const SpelledInteger& spelled, std::string_view text) {
  if (!spelled.is_one) fault("an integer", detail::shown(text));
  push(spelled.value ? tree_.make_integer(*spelled.value) : Value(Type::huge_integer, at_));
}

void Machine::integer_line() {
  const std::string_view line = source_.line(kLongestLine);
  if (line == "00" || line == "01") return push({Type::boolean, line == "01" ? 1u : 0u});
  integer(parse_integer(line), line);
}

void Machine::long_line() {
  std::string_view line = source_.line(kLongestLine);
  if (line.ends_with('L')) line.remove_suffix(1);
  integer(parse_integer(line), line);
}

void Machine::long_integer(std::uint64_t bytes) {
  if (bytes <= 8) return push(tree_.make_integer(source_.signed_number(bytes)));
  source_.skip(bytes);
  push({Type::huge_integer, at_});
}

void Machine::float_line() {
  const std::string_view line = source_.line(kLongestLine);
  double value = 0;
  const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
  if (result.ec != std::errc{} || result.ptr != line.data() + line.size())
    fault("a number", detail::shown(line));
  push(tree_.make_number(value));
}

std::uint64_t Machine::number_line() {
  const std::string_view line = source_.line(kLongestLine);
  const SpelledInteger spelled = parse_integer(line);
  if (!spelled.value || *spelled.value < 0) fault("a number of the memo", detail::shown(line));
  return static_cast<std::uint64_t>(*spelled.value);
}

// ---- The operations, under their names in Python's pickletools ----

void Machine::step_number(std::uint8_t op) {
  switch (op) {
    case 'N':  // NONE
      return push({});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return push({Type::boolean, op == 0x88 ? 1u : 0u});
    case 'J':  // BININT
      return push(tree_.make_integer(source_.signed_number(4)));
    case 'K':  // BININT1
      return push(tree_.make_integer(source_.byte()));
    case 'M':  // BININT2
      return push(tree_.make_integer(static_cast<std::int64_t>(source_.number(2))));
    case 0x8a:  // LONG1
      return long_integer(source_.byte());
    case 0x8b: {  // LONG4
      const std::int64_t size = source_.signed_number(4);
      if (size < 0) fault("a length", std::to_string(size));
      return long_integer(static_cast<std::uint64_t>(size));
    }
    case 'I':  // INT
      return integer_line();
    case 'L':  // LONG
      return long_line();
    case 'F':  // FLOAT
      return float_line();
    default:  // 'G', BINFLOAT
      return push(tree_.make_number(source_.big_endian_double()));
  }
}

void Machine::step_text(std::uint8_t op) {
  switch (op) {
    case 0x8c:  // SHORT_BINUNICODE
    case 'U':   // SHORT_BINSTRING
      return text(source_.byte(), Type::text);
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      return text(source_.number(4), Type::text);
    case 0x8d:  // BINUNICODE8
      return text(source_.number(8), Type::text);
    case 'C':  // SHORT_BINBYTES
      return text(source_.byte(), Type::bytes);
    case 'B':  // BINBYTES
      return text(source_.number(4), Type::bytes);
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      return text(source_.number(8), Type::bytes);
    default: {  // 'S', STRING; 'V', UNICODE
      const std::string_view line = source_.line(limits_.most_bytes / 4);
      const auto plain = op == 'S' ? unquote(line) : unescape_unicode(line);
      if (!plain) fault("a text", detail::shown(line));
      return push(tree_.make_text(Type::text, *plain));
    }
  }
}

void Machine::step_container(std::uint8_t op) {
  switch (op) {
    case ']':  // EMPTY_LIST
      return push(container(Type::list, {}, at_));
    case '}':  // EMPTY_DICT
      return push(dict({}, at_));
    case ')':  // EMPTY_TUPLE
      return tuple_of(0);
    case 0x8f:  // EMPTY_SET
      return push(container(Type::set, {}, at_));
    case 0x85:  // TUPLE1, 2, 3
    case 0x86:
    case 0x87:
      return tuple_of(op - 0x84u);
    case 'a': {  // APPEND
      const Value item = pop();
      return append(top(), {&item, 1}, Type::list);
    }
    case 'e':  // APPENDS
      return append_above_mark(Type::list);
    case 0x90:  // ADDITEMS
      return append_above_mark(Type::set);
    case 's': {  // SETITEM
      const Value value = pop();
      const std::array pair{pop(), value};
      return set_items(top(), pair);
    }
    case 'u':  // SETITEMS
      return set_items_above_mark();
    default:  // 'd', DICT; 'l', LIST; 't', TUPLE; FROZENSET
      return from_above_mark(op);
  }
}

void Machine::step_memo(std::uint8_t op) {
  switch (op) {
    case 'h':  // BINGET
      return get(source_.byte());
    case 'j':  // LONG_BINGET
      return get(source_.number(4));
    case 'q':  // BINPUT
      return put(source_.byte());
    case 'r':  // LONG_BINPUT
      return put(source_.number(4));
    case 'g':  // GET
      return get(number_line());
    case 'p':  // PUT
      return put(number_line());
    default:  // MEMOIZE
      return put(memo_.size());
  }
}

void Machine::step_other(std::uint8_t op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const int protocol = source_.byte(); protocol > kNewestProtocol)
        fault("a pickle of protocol 0 to 5", "protocol " + std::to_string(protocol));
      return;
    case 0x95:  // FRAME: only says how far one could read ahead
      return source_.skip(8);
    case '(':  // MARK
      return open_mark();
    case '0':  // POP
      return pop_one_or_mark();
    case '1':  // POP_MARK
      return drop(above_mark());
    case '2':  // DUP
      return push(top());
    case 'c': {  // GLOBAL
      const std::string module(source_.line(kLongestLine));
      return function(module, source_.line(kLongestLine));
    }
    case 0x93:  // STACK_GLOBAL
      return stack_function();
    case 'R':  // REDUCE
      return reduce();
    case 'P':  // PERSID, BINPERSID, NEXT_BUFFER, READONLY_BUFFER
    case 'Q':
    case 0x97:
    case 0x98:
      refuse("a value from outside the file");
    default:  // BUILD, INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, EXT2, EXT4
      refuse("an object of a class");
  }
}

// False: the end.
bool Machine::step() {
  at_ = source_.offset();
  const std::uint8_t op = source_.byte();
  switch (kGroups[op]) {
    case Group::number:
      step_number(op);
      break;
    case Group::text:
      step_text(op);
      break;
    case Group::container:
      step_container(op);
      break;
    case Group::memo:
      step_memo(op);
      break;
    case Group::other:
      if (op == '.') break;
      step_other(op);
      break;
    case Group::unknown:
      fault("an operation of a pickle", "byte " + std::to_string(op));
  }
  if (op == '.') tree_.root = pop();
  return op != '.';
}

}  // namespace

Tree unpickle(Input& input, const Limits& limits) {
  return Machine(input, limits).run();
}

}  // namespace headroom::trace::pickle
