#include "headroom/trace/detail/unpickle.h"

#include <array>
#include <string>
#include <utility>

#include "headroom/trace/detail/pickle_machine.h"

namespace headroom::trace::pickle {
namespace {

constexpr std::uint64_t kLongestName = std::uint64_t{1} << 20;  // the name of a function
constexpr int kOldestProtocol = 2, kNewestProtocol = 5;

// Operations of one group share a function below.
enum class Group : std::uint8_t { unknown, number, text, container, memo, other };

constexpr std::array<Group, 256> kGroups = [] {
  using namespace std::string_view_literals;
  std::array<Group, 256> groups{};
  const auto put = [&](Group group, std::string_view operations) {
    for (const char c : operations) groups[static_cast<unsigned char>(c)] = group;
  };
  put(Group::number, "NJKMG\x88\x89\x8a\x8b"sv);
  put(Group::text, "XCB\x8c\x8d\x8e\x96"sv);
  put(Group::container, "])}aesut\x85\x86\x87\x8f\x90\x91"sv);
  put(Group::memo, "hjqr\x94"sv);
  put(Group::other, "(.01cRbQ\x80\x81\x82\x83\x84\x92\x93\x95\x97\x98"sv);
  return groups;
}();

// Reads the operations one by one and executes them on the machine.
class Decoder {
 public:
  Decoder(Input& input, const Limits& limits) : machine_(input, limits) {}

  Tree run() {
    while (step()) machine_.check_memory();
    return std::move(tree_);
  }

 private:
  bool step();
  void step_number(std::uint8_t op);
  void step_text(std::uint8_t op);
  void step_container(std::uint8_t op);
  void step_memo(std::uint8_t op);
  void step_other(std::uint8_t op);

  void long_integer(std::uint64_t bytes);
  void text(std::uint64_t size, Type type) {
    const std::string_view bytes = source_.bytes(size, machine_.limits().most_bytes / 4);
    machine_.push(tree_.make_text(type, bytes));
  }

  Machine machine_;
  Source& source_ = machine_.source();
  Tree& tree_ = machine_.tree();
};

// ---- Numbers ----

void Decoder::long_integer(std::uint64_t bytes) {
  if (bytes <= 8) return machine_.push(tree_.make_integer(source_.signed_number(bytes)));
  source_.skip(bytes);
  machine_.push({Type::huge_integer, machine_.offset()});
}

// ---- The operations, under their names in Python's pickletools ----

void Decoder::step_number(std::uint8_t op) {
  switch (op) {
    case 'N':  // NONE
      return machine_.push({});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return machine_.push({Type::boolean, op == 0x88 ? 1u : 0u});
    case 'J':  // BININT
      return machine_.push(tree_.make_integer(source_.signed_number(4)));
    case 'K':  // BININT1
      return machine_.push(tree_.make_integer(source_.byte()));
    case 'M':  // BININT2
      return machine_.push(tree_.make_integer(static_cast<std::int64_t>(source_.number(2))));
    case 0x8a:  // LONG1
      return long_integer(source_.byte());
    case 0x8b: {  // LONG4
      const std::int64_t size = source_.signed_number(4);
      if (size < 0) machine_.fault("a length", std::to_string(size));
      return long_integer(static_cast<std::uint64_t>(size));
    }
    default:  // 'G', BINFLOAT
      return machine_.push(tree_.make_number(source_.big_endian_double()));
  }
}

void Decoder::step_text(std::uint8_t op) {
  switch (op) {
    case 0x8c:  // SHORT_BINUNICODE
      return text(source_.byte(), Type::text);
    case 'X':  // BINUNICODE
      return text(source_.number(4), Type::text);
    case 0x8d:  // BINUNICODE8
      return text(source_.number(8), Type::text);
    case 'C':  // SHORT_BINBYTES
      return text(source_.byte(), Type::bytes);
    case 'B':  // BINBYTES
      return text(source_.number(4), Type::bytes);
    default:  // 0x8e, BINBYTES8; 0x96, BYTEARRAY8
      return text(source_.number(8), Type::bytes);
  }
}

void Decoder::step_container(std::uint8_t op) {
  switch (op) {
    case ']':  // EMPTY_LIST
      return machine_.push_container(Type::list);
    case '}':  // EMPTY_DICT
      return machine_.push_container(Type::dict);
    case ')':  // EMPTY_TUPLE
      return machine_.tuple_of(0);
    case 0x8f:  // EMPTY_SET
      return machine_.push_container(Type::set);
    case 0x85:  // TUPLE1, 2, 3
    case 0x86:
    case 0x87:
      return machine_.tuple_of(op - 0x84u);
    case 'a':  // APPEND
      return machine_.append();
    case 'e':  // APPENDS
      return machine_.append_above_mark(Type::list);
    case 0x90:  // ADDITEMS
      return machine_.append_above_mark(Type::set);
    case 's':  // SETITEM
      return machine_.set_item();
    case 'u':  // SETITEMS
      return machine_.set_items_above_mark();
    case 't':  // TUPLE
      return machine_.container_from_above_mark(Type::tuple);
    default:  // FROZENSET
      return machine_.container_from_above_mark(Type::set);
  }
}

void Decoder::step_memo(std::uint8_t op) {
  switch (op) {
    case 'h':  // BINGET
      return machine_.get(source_.byte());
    case 'j':  // LONG_BINGET
      return machine_.get(source_.number(4));
    case 'q':  // BINPUT
      return machine_.put(source_.byte());
    case 'r':  // LONG_BINPUT
      return machine_.put(source_.number(4));
    default:  // MEMOIZE
      return machine_.put_next();
  }
}

void Decoder::step_other(std::uint8_t op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const int protocol = source_.byte();
          protocol < kOldestProtocol || protocol > kNewestProtocol)
        machine_.fault("a pickle of protocol 2 to 5", "protocol " + std::to_string(protocol));
      return;
    case 0x95:  // FRAME: only a hint for reading ahead
      return source_.skip(8);
    case '(':  // MARK
      return machine_.open_mark();
    case '0':  // POP
      machine_.pop();
      return;
    case '1':  // POP_MARK
      return machine_.pop_mark();
    case 'c': {  // GLOBAL
      const std::string module(source_.line(kLongestName));
      return machine_.function(module, source_.line(kLongestName));
    }
    case 0x93:  // STACK_GLOBAL
      return machine_.stack_function();
    case 'R':  // REDUCE
      return machine_.reduce();
    case 'Q':  // BINPERSID, NEXT_BUFFER, READONLY_BUFFER
    case 0x97:
    case 0x98:
      machine_.refuse("a value from outside the file");
    default:  // BUILD, NEWOBJ, NEWOBJ_EX, EXT1, EXT2, EXT4
      machine_.refuse("an object of a class");
  }
}

// Returns false at the end.
bool Decoder::step() {
  machine_.begin_operation();
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
      machine_.fault("an operation of a pickle", "byte " + std::to_string(op));
  }
  if (op == '.') tree_.root = machine_.pop();
  return op != '.';
}

}  // namespace

Tree unpickle(Input& input, const Limits& limits) {
  return Decoder(input, limits).run();
}

}  // namespace headroom::trace::pickle
