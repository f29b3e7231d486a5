#include "headroom/trace/detail/unpickle.h"

#include <array>
#include <string>
#include <utility>

#include "headroom/trace/detail/pickle_machine.h"

namespace headroom::trace::pickle {
namespace {

constexpr std::uint64_t kLongestName = std::uint64_t{1} << 20;  // the name of a function
constexpr int kOldestProtocol = 2, kNewestProtocol = 5;

// Reads operations and executes them on the machine.
struct Decoder {
  Decoder(Input& input, const Limits& limits) : machine(input, limits) {}

  void boolean(bool value) { machine.push({Type::boolean, value ? 1U : 0U}); }
  void number() { machine.push(tree.make_number(source.big_endian_double())); }
  void integer(std::int64_t value) { machine.push(tree.make_integer(value)); }
  void long_integer(std::uint64_t bytes) {
    if (bytes <= 8) return integer(source.signed_number(bytes));
    source.skip(bytes);
    machine.push({Type::huge_integer, machine.offset()});
  }
  void very_long_integer() {
    const std::int64_t size = source.signed_number(4);
    if (size < 0) machine.fault("a length", std::to_string(size));
    long_integer(static_cast<std::uint64_t>(size));
  }
  void text(std::uint64_t size, Type type) {
    machine.push(tree.make_text(type, source.bytes(size, machine.limits().most_bytes / 4)));
  }
  void function() {
    const std::string module(source.line(kLongestName));
    machine.function(module, source.line(kLongestName));
  }
  void check_protocol() {
    const int protocol = source.byte();
    if (protocol < kOldestProtocol || protocol > kNewestProtocol)
      machine.fault("a pickle of protocol 2 to 5", "protocol " + std::to_string(protocol));
  }

  Machine machine;
  Source& source = machine.source();
  Tree& tree = machine.tree();
};

using Step = void (*)(Decoder&);
constexpr Step kOutside = [](Decoder& d) { d.machine.refuse("a value from outside the file"); };
constexpr Step kObject = [](Decoder& d) { d.machine.refuse("an object of a class"); };

struct Operation {
  std::uint8_t code;
  Step step;
};

// The operations but STOP, under their names in Python's pickletools.
constexpr Operation kOperations[] = {
    {'N', [](Decoder& d) { d.machine.push({}); }},                    // NONE
    {0x88, [](Decoder& d) { d.boolean(true); }},                      // NEWTRUE
    {0x89, [](Decoder& d) { d.boolean(false); }},                     // NEWFALSE
    {'J', [](Decoder& d) { d.integer(d.source.signed_number(4)); }},  // BININT
    {'K', [](Decoder& d) { d.integer(d.source.byte()); }},            // BININT1
    {'M', [](Decoder& d) { d.integer(static_cast<std::int64_t>(d.source.number(2))); }},  // BININT2
    {0x8a, [](Decoder& d) { d.long_integer(d.source.byte()); }},                          // LONG1
    {0x8b, [](Decoder& d) { d.very_long_integer(); }},                                    // LONG4
    {'G', [](Decoder& d) { d.number(); }},                                // BINFLOAT
    {0x8c, [](Decoder& d) { d.text(d.source.byte(), Type::text); }},      // SHORT_BINUNICODE
    {'X', [](Decoder& d) { d.text(d.source.number(4), Type::text); }},    // BINUNICODE
    {0x8d, [](Decoder& d) { d.text(d.source.number(8), Type::text); }},   // BINUNICODE8
    {'C', [](Decoder& d) { d.text(d.source.byte(), Type::bytes); }},      // SHORT_BINBYTES
    {'B', [](Decoder& d) { d.text(d.source.number(4), Type::bytes); }},   // BINBYTES
    {0x8e, [](Decoder& d) { d.text(d.source.number(8), Type::bytes); }},  // BINBYTES8
    {0x96, [](Decoder& d) { d.text(d.source.number(8), Type::bytes); }},  // BYTEARRAY8
    {']', [](Decoder& d) { d.machine.push_container(Type::list); }},      // EMPTY_LIST
    {'}', [](Decoder& d) { d.machine.push_container(Type::dict); }},      // EMPTY_DICT
    {0x8f, [](Decoder& d) { d.machine.push_container(Type::set); }},      // EMPTY_SET
    {')', [](Decoder& d) { d.machine.tuple_of(0); }},                     // EMPTY_TUPLE
    {0x85, [](Decoder& d) { d.machine.tuple_of(1); }},                    // TUPLE1
    {0x86, [](Decoder& d) { d.machine.tuple_of(2); }},                    // TUPLE2
    {0x87, [](Decoder& d) { d.machine.tuple_of(3); }},                    // TUPLE3
    {'a', [](Decoder& d) { d.machine.append(); }},                        // APPEND
    {'e', [](Decoder& d) { d.machine.append_above_mark(Type::list); }},   // APPENDS
    {0x90, [](Decoder& d) { d.machine.append_above_mark(Type::set); }},   // ADDITEMS
    {'s', [](Decoder& d) { d.machine.set_item(); }},                      // SETITEM
    {'u', [](Decoder& d) { d.machine.set_items_above_mark(); }},          // SETITEMS
    {'t', [](Decoder& d) { d.machine.container_from_above_mark(Type::tuple); }},  // TUPLE
    {0x91, [](Decoder& d) { d.machine.container_from_above_mark(Type::set); }},   // FROZENSET
    {'h', [](Decoder& d) { d.machine.get(d.source.byte()); }},                    // BINGET
    {'j', [](Decoder& d) { d.machine.get(d.source.number(4)); }},                 // LONG_BINGET
    {'q', [](Decoder& d) { d.machine.put(d.source.byte()); }},                    // BINPUT
    {'r', [](Decoder& d) { d.machine.put(d.source.number(4)); }},                 // LONG_BINPUT
    {0x94, [](Decoder& d) { d.machine.put_next(); }},                             // MEMOIZE
    {0x80, [](Decoder& d) { d.check_protocol(); }},                               // PROTO
    {0x95, [](Decoder& d) { d.source.skip(8); }},            // FRAME: only a hint for reading ahead
    {'(', [](Decoder& d) { d.machine.open_mark(); }},        // MARK
    {'0', [](Decoder& d) { d.machine.pop(); }},              // POP
    {'1', [](Decoder& d) { d.machine.pop_mark(); }},         // POP_MARK
    {'c', [](Decoder& d) { d.function(); }},                 // GLOBAL
    {0x93, [](Decoder& d) { d.machine.stack_function(); }},  // STACK_GLOBAL
    {'R', [](Decoder& d) { d.machine.reduce(); }},           // REDUCE
    {'Q', kOutside},                                         // BINPERSID
    {0x97, kOutside},                                        // NEXT_BUFFER
    {0x98, kOutside},                                        // READONLY_BUFFER
    {'b', kObject},                                          // BUILD
    {0x81, kObject},                                         // NEWOBJ
    {0x92, kObject},                                         // NEWOBJ_EX
    {0x82, kObject},                                         // EXT1
    {0x83, kObject},                                         // EXT2
    {0x84, kObject},                                         // EXT4
};

constexpr auto kStepOf = [] {
  std::array<Step, 256> steps{};
  for (const Operation& operation : kOperations) steps[operation.code] = operation.step;
  return steps;
}();

}  // namespace

Tree unpickle(Input& input, const Limits& limits) {
  Decoder decoder(input, limits);
  while (true) {
    decoder.machine.begin_operation();
    const std::uint8_t code = decoder.source.byte();
    if (code == '.') {  // STOP
      decoder.tree.root = decoder.machine.pop();
      return std::move(decoder.tree);
    }
    const Step step = kStepOf[code];
    if (step == nullptr)
      decoder.machine.fault("an operation of a pickle", "byte " + std::to_string(code));
    step(decoder);
    decoder.machine.check_memory();
  }
}

}  // namespace headroom::trace::pickle
