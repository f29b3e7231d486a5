#include "headroom/trace/detail/unpickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/trace/pickled.h"

namespace headroom::trace::pickle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::pickled;
using namespace std::string_literals;

Tree read(std::string_view bytes, const Limits& limits = {}) {
  Input input = Input::memory("a.pickle", bytes);
  return unpickle(input, limits);
}

std::string error_of(std::string_view bytes, const Limits& limits = {}) {
  try {
    read(bytes, limits);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

// The value again as Python writes it, for values without cycles.
std::string shown(const Tree& tree, Value value) {
  std::string text;
  const auto separate = [&] { text += text.size() > 1 ? ", " : ""; };
  switch (value.type()) {
    case Type::none:
      return "None";
    case Type::boolean:
      return *tree.integer(value) != 0 ? "True" : "False";
    case Type::integer:
    case Type::wide_integer:
      return std::to_string(*tree.integer(value));
    case Type::huge_integer:
      return "huge";
    case Type::number:
      return std::to_string(*tree.number(value));
    case Type::text:
      return "'" + std::string(tree.text(value)) + "'";
    case Type::bytes:
      return "b'" + std::string(tree.text(value)) + "'";
    case Type::function:
      return "function";
    case Type::dict:
      text = "{";
      tree.each_key(value, [&](Value key, Value item) {
        separate();
        text += shown(tree, key) + ": " + shown(tree, item);
      });
      return text + "}";
    default: {
      text = value.type() == Type::list ? "[" : value.type() == Type::tuple ? "(" : "<";
      Value item;
      for (Items items = tree.items(value); items.next(item);) {
        separate();
        text += shown(tree, item);
      }
      return text + (text[0] == '[' ? "]" : text[0] == '(' ? ")" : ">");
    }
  }
}

std::string shown(std::string_view bytes) {
  const Tree tree = read(bytes);
  return shown(tree, tree.root);
}

class Unpickle : public ::testing::TestWithParam<int> {};

TEST_P(Unpickle, GivesWhatPythonPickled) {
  const std::string value =
      "{'a': [1, -2, 255, 256, 65535, 65536, -2147483648, 2147483648, -9223372036854775808, "
      "9223372036854775807], 'b': (None, True, False), 'c': {'': 1.500000, 'deep': [[[()]]]}, "
      "7: 'café €', 'one': (1), 'list of one': ['x']}";
  // Python spells a tuple of one with a comma.
  std::string python = value;
  python.replace(python.find("(1)"), 3, "(1,)");
  EXPECT_EQ(shown(pickled(python, GetParam())), value);
}

TEST_P(Unpickle, KeepsSharedAndSelfContainingValues) {
  const std::string bytes = pickled(
      "(lambda l, d: [l.append(l), l.append(d), d.update(me=d), l][3])([], {})", GetParam());
  const Tree tree = read(bytes);
  Value first;
  Items items = tree.items(tree.root);
  ASSERT_TRUE(items.next(first));
  EXPECT_EQ(first, tree.root);
  Value dict;
  ASSERT_TRUE(items.next(dict));
  Tree copy = read(bytes);
  EXPECT_EQ(copy.find(dict, copy.make_text(Type::text, "me")), dict);
}

// Containers that grow in several steps, with others in between.
TEST_P(Unpickle, KeepsTheOrderOfLongLists) {
  const Tree tree =
      read(pickled("[[i, {i: str(i) for i in range(3)}] for i in range(5000)]", GetParam()));
  ASSERT_EQ(tree.size(tree.root), 5000u);
  Value pair;
  std::int64_t expected = 0;
  for (Items items = tree.items(tree.root); items.next(pair); ++expected)
    ASSERT_EQ(shown(tree, pair), "[" + std::to_string(expected) + ", {0: '0', 1: '1', 2: '2'}]");
}

TEST_P(Unpickle, RefusesToRunCode) {
  EXPECT_THAT(error_of(pickled("__import__('os').system", GetParam())),
              AllOf(HasSubstr("refuses to run code"), HasSubstr("system"), HasSubstr("of a.pickle"),
                    HasSubstr("at byte ")));
}

// Protocol 4 writes the length of a frame, which the reader ignores.
TEST_P(Unpickle, NamesTheByteWhereACutFileEnds) {
  const std::string whole = pickled("{'a': [1, 2.5, 'text', (3, 4)], 'b': 2**40}", GetParam());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(error_of(whole.substr(0, size)),
                HasSubstr("at byte " + std::to_string(size) + " of a.pickle"));
}

INSTANTIATE_TEST_SUITE_P(Protocols, Unpickle, ::testing::Range(2, 6));

TEST(Unpickle, ReadsBytesAndSets) {
  EXPECT_EQ(shown(pickled("[b'raw', bytearray(b'array')]", 5)), "[b'raw', b'array']");
  EXPECT_EQ(shown(pickled("[{7}, frozenset([8])]", 4)), "[<7>, <8>]");
}

TEST(Unpickle, UnderstandsOrderedDictsAndLibTorchsListsAsData) {
  EXPECT_EQ(shown(pickled("collections.OrderedDict([('a', 1), ('b', 2)])", 4)), "{'a': 1, 'b': 2}");
  EXPECT_EQ(shown("\x80\x02"
                  "ctorch.jit._pickle\nrestore_type_tag\n](K\x01K\x02"
                  "eX\x03\0\0\0Any\x86R."s),
            "[1, 2]");
}

TEST(Unpickle, KeepsAnIntegerBeyond64BitsWithoutItsValue) {
  const Tree tree = read(pickled("[2**64, -2**70]"));
  EXPECT_EQ(shown(tree, tree.root), "[huge, huge]");
}

TEST(Unpickle, RefusesObjectsAndValuesFromElsewhere) {
  for (const std::string_view bytes : {"}}b.", ")Q.", "\x82\x01.", "\x97."})
    EXPECT_THAT(error_of(bytes), HasSubstr("refuses to run code")) << bytes;
}

TEST(Unpickle, NamesTheMistakeInAMalformedPickle) {
  EXPECT_THAT(error_of("\x80\x01."), HasSubstr("protocol 1"));
  EXPECT_THAT(error_of("\x80\x07."), HasSubstr("protocol 7"));
  EXPECT_THAT(error_of("\xff"), HasSubstr("byte 255"));
  EXPECT_THAT(error_of("."), HasSubstr("none on the stack"));
  EXPECT_THAT(error_of("h\x05."), HasSubstr("number 5, which is not in it"));
  EXPECT_THAT(error_of("e."), HasSubstr("an open mark"));
  EXPECT_THAT(error_of("}(K\x01u."), HasSubstr("a key without one"));
  EXPECT_THAT(error_of("}]K\x01s."), HasSubstr("a list, dict or set"));
  EXPECT_THAT(error_of("}K\x01"
                       "a."),
              HasSubstr("a list or set to add to"));
  EXPECT_THAT(error_of("]r\xff\xff\xff\x7f."), HasSubstr("a memo number up to"));
}

// Ten bytes that promise 4 GiB of text.
TEST(Unpickle, DoesNotTrustALengthBeforeTheBytesArrive) {
  EXPECT_THAT(error_of("X\xff\xff\xff\xff"
                       "text."s),
              HasSubstr("the end of the file"));
}

TEST(Unpickle, BoundsMemoryByTheSizeOfTheFile) {
  EXPECT_THAT(error_of(std::string(100'000, ']'), {.base_bytes = 1 << 20}),
              HasSubstr("whose values take at most"));
  EXPECT_THAT(error_of(std::string(2000, '('), {}), HasSubstr("nested at most 1000 deep"));
}

}  // namespace
}  // namespace headroom::trace::pickle
