#include "headroom/trace/detail/unpickle.h"

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "headroom/trace/detail/fault.h"
#include "headroom/trace/detail/pickle_machine.h"
#include "headroom/trace/detail/pickle_text.h"

namespace headroom::trace::pickle {
namespace {

constexpr std::uint64_t kLongestLine = std::uint64_t{1} << 20;  // of protocol 0, except texts
constexpr int kNewestProtocol = 5;

// Operations of one group share a function below.
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

  void integer(const SpelledInteger& spelled, std::string_view text);
  void integer_line();
  void long_line();
  void long_integer(std::uint64_t bytes);
  void float_line();
  std::uint64_t number_line();
  void text(std::uint64_t size, Type type) {
    const std::string_view bytes = source_.bytes(size, machine_.limits().most_bytes / 4);
    machine_.push(tree_.make_text(type, bytes));
  }

  Machine machine_;
  Source& source_ = machine_.source();
  Tree& tree_ = machine_.tree();
};

// ---- Numbers ----

void Decoder::integer(const SpelledInteger& spelled, std::string_view text) {
  if (!spelled.is_one) machine_.fault("an integer", detail::shown(text));
  machine_.push(spelled.value ? tree_.make_integer(*spelled.value)
                              : Value(Type::huge_integer, machine_.offset()));
}

void Decoder::integer_line() {
  const std::string_view line = source_.line(kLongestLine);
  if (line == "00" || line == "01") return machine_.push({Type::boolean, line == "01" ? 1u : 0u});
  integer(parse_integer(line), line);
}

void Decoder::long_line() {
  std::string_view line = source_.line(kLongestLine);
  if (line.ends_with('L')) line.remove_suffix(1);
  integer(parse_integer(line), line);
}

void Decoder::long_integer(std::uint64_t bytes) {
  if (bytes <= 8) return machine_.push(tree_.make_integer(source_.signed_number(bytes)));
  source_.skip(bytes);
  machine_.push({Type::huge_integer, machine_.offset()});
}

void Decoder::float_line() {
  const std::string_view line = source_.line(kLongestLine);
  double value = 0;
  const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
  if (result.ec != std::errc{} || result.ptr != line.data() + line.size())
    machine_.fault("a number", detail::shown(line));
  machine_.push(tree_.make_number(value));
}

std::uint64_t Decoder::number_line() {
  const std::string_view line = source_.line(kLongestLine);
  const SpelledInteger spelled = parse_integer(line);
  if (!spelled.value || *spelled.value < 0)
    machine_.fault("a number of the memo", detail::shown(line));
  return static_cast<std::uint64_t>(*spelled.value);
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
    case 'I':  // INT
      return integer_line();
    case 'L':  // LONG
      return long_line();
    case 'F':  // FLOAT
      return float_line();
    default:  // 'G', BINFLOAT
      return machine_.push(tree_.make_number(source_.big_endian_double()));
  }
}

void Decoder::step_text(std::uint8_t op) {
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
      const std::string_view line = source_.line(machine_.limits().most_bytes / 4);
      const auto plain = op == 'S' ? unquote(line) : unescape_unicode(line);
      if (!plain) machine_.fault("a text", detail::shown(line));
      return machine_.push(tree_.make_text(Type::text, *plain));
    }
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
    case 'd':  // DICT
      return machine_.container_from_above_mark(Type::dict);
    case 'l':  // LIST
      return machine_.container_from_above_mark(Type::list);
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
    case 'g':  // GET
      return machine_.get(number_line());
    case 'p':  // PUT
      return machine_.put(number_line());
    default:  // MEMOIZE
      return machine_.put_next();
  }
}

void Decoder::step_other(std::uint8_t op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const int protocol = source_.byte(); protocol > kNewestProtocol)
        machine_.fault("a pickle of protocol 0 to 5", "protocol " + std::to_string(protocol));
      return;
    case 0x95:  // FRAME: only a hint for reading ahead
      return source_.skip(8);
    case '(':  // MARK
      return machine_.open_mark();
    case '0':  // POP
      return machine_.pop_one_or_mark();
    case '1':  // POP_MARK
      return machine_.pop_mark();
    case '2':  // DUP
      return machine_.push(machine_.top());
    case 'c': {  // GLOBAL
      const std::string module(source_.line(kLongestLine));
      return machine_.function(module, source_.line(kLongestLine));
    }
    case 0x93:  // STACK_GLOBAL
      return machine_.stack_function();
    case 'R':  // REDUCE
      return machine_.reduce();
    case 'P':  // PERSID, BINPERSID, NEXT_BUFFER, READONLY_BUFFER
    case 'Q':
    case 0x97:
    case 0x98:
      machine_.refuse("a value from outside the file");
    default:  // BUILD, INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, EXT2, EXT4
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
