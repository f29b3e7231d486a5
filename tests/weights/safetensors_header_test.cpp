// The head of safetensors files: accepted heads, refusals with their words, and garbage.
#include "headroom/weights/detail/safetensors_header.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "headroom/base/error.h"
#include "tests/support/garbage.h"
#include "tests/weights/safetensors_files.h"

namespace headroom::weights::detail {
namespace {

using namespace headroom::models;

using ::testing::HasSubstr;

std::vector<StoredTensor> read(const std::string& file) {
  return read_safetensors_header(file, "x.safetensors");
}

std::string refusal(const std::string& file) {
  try {
    static_cast<void>(read(file));
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

std::string refusal(std::string_view json, std::size_t data_bytes) {
  return refusal(file_of(json, std::string(data_bytes, '\1')));
}

TEST(SafetensorsHeader, GivesTensorsInTheOrderOfTheirBytes) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )";
  const auto tensors = read(file_of(json, std::string(20, 'x')));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type->name, "I64");
  EXPECT_TRUE(tensors[0].shape.empty());
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_THAT(tensors[1].shape, ::testing::ElementsAre(2, 3));
  EXPECT_EQ(tensors[1].begin, 8 + json.size() + 8);
  EXPECT_EQ(tensors[1].end, 8 + json.size() + 20);
}

// All of these are read by the format's own library (safetensors 0.8).
TEST(SafetensorsHeader, TakesWhatTheFormatAllows) {
  EXPECT_TRUE(read(file_of("{}", "")).empty());
  EXPECT_TRUE(read(file_of(R"({"__metadata__":{}})", "")).empty());
  EXPECT_EQ(read(file_of(R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("z":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}})",
                         "x"))
                .size(),
            3U);
  // Early files have floats at odd places.
  EXPECT_EQ(read(file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
                         "abcdefg"))
                .size(),
            2U);
  EXPECT_EQ(read(file_of(R"({"a":{"more":{"x":[[1]]},"dtype":"F4","shape":[4],)"
                         R"("data_offsets":[0,2],"x":null}})",
                         "ab"))
                .size(),
            1U);
}

TEST(SafetensorsHeader, RefusesAnImpossibleLength) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("received 'a file of 0'"));
  EXPECT_THAT(refusal(std::string("1234567")), HasSubstr("x.safetensors"));
  EXPECT_THAT(refusal(std::string(8, '\xff')), HasSubstr("at most 100 MB"));
  const std::string claims_100_mb("\x00\xe1\xf5\x05\x00\x00\x00\x00{}", 10);
  EXPECT_THAT(refusal(claims_100_mb), HasSubstr("100000000 bytes in a file of 10"));
  EXPECT_THAT(refusal(std::string("\x03\0\0\0\0\0\0\0{}", 10)), HasSubstr("is it complete?"));
}

TEST(SafetensorsHeader, RefusesInvalidJsonAndSaysWhere) {
  EXPECT_THAT(refusal("", 0), HasSubstr("byte 8"));
  EXPECT_THAT(refusal(R"({"a":)", 0), HasSubstr("expected a head of JSON in x.safetensors"));
  EXPECT_THAT(refusal(R"({"a" 1})", 0), HasSubstr("byte 15"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(R"({"a":1})", 0), HasSubstr("an object for each tensor"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"x":1}})", 0), HasSubstr("texts alone"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":7}})", 0), HasSubstr("tensor \"a\", byte 24"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[-1]}})", 0), HasSubstr("whole numbers for `shape`"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[1.0]}})", 0), HasSubstr("received '1.0'"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[18446744073709551616]}})", 0), HasSubstr("whole numbers"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[[1]]}})", 0), HasSubstr("a list"));
  EXPECT_THAT(refusal("{\"\xff\":{}}", 0), HasSubstr("something else at byte 1"));
  EXPECT_THAT(refusal(std::string(100'000, '['), 0), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(R"({"a":{"x":)" + std::string(100'000, '['), 0), HasSubstr("something else"));
}

TEST(SafetensorsHeader, RefusesDuplicateKeys) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal("{" + entry + "," + entry + "}", 1), HasSubstr("received '\"a\" again'"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0), HasSubstr("\"dtype\" again"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("again"));
}

TEST(SafetensorsHeader, RefusesImpossibleTensors) {
  const auto entry = [](const char* type, const char* shape, const char* offsets) {
    return std::string(R"({"a":{"dtype":")") + type + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(refusal(entry("F32", "[1]", "[0,4]"), 4), "none");
  EXPECT_THAT(refusal(entry("F33", "[1]", "[0,4]"), 4), HasSubstr("F32 or BF16"));
  EXPECT_THAT(refusal(entry("F32", "[2]", "[0,4]"), 4), HasSubstr("expected 8 bytes, which F32"));
  EXPECT_THAT(refusal(entry("F32", "[1]", "[4,0]"), 4), HasSubstr("a beginning and an end"));
  EXPECT_THAT(refusal(entry("F32", "[1]", "[0]"), 4), HasSubstr("a beginning and an end"));
  EXPECT_THAT(refusal(entry("F4", "[3]", "[0,2]"), 2), HasSubstr("can be counted"));
  // 2^32 x 2^32 x 4 bytes are 0 in 64 bits.
  EXPECT_THAT(refusal(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0),
              HasSubstr("can be counted"));
  EXPECT_THAT(refusal(entry("U8", "[9223372036854775808,0]", "[0,0]"), 0),
              HasSubstr("can be counted"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("`data_offsets`"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("`shape`"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("`dtype`"));
}

TEST(SafetensorsHeader, RefusesBytesThatOverlapLeaveHolesOrAreMissing) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 8), "none");
  EXPECT_THAT(refusal(two("[0,4]", "[4,8]"), 7), HasSubstr("within the 7 that the file has"));
  EXPECT_THAT(refusal(two("[0,4]", "[4,8]"), 9), HasSubstr("where its last tensor ends"));
  EXPECT_THAT(refusal(two("[0,4]", "[3,7]"), 8), HasSubstr("tensor \"b\""));
  EXPECT_THAT(refusal(two("[0,4]", "[5,9]"), 9),
              HasSubstr("byte 4 of the data, where the tensor before it ends"));
  EXPECT_THAT(refusal(two("[1,5]", "[5,9]"), 9), HasSubstr("tensor \"a\""));
  EXPECT_THAT(refusal(two("[0,4]", "[0,4]"), 4), HasSubstr("received '0'"));
  EXPECT_THAT(refusal(two("[0,4]", "[18446744073709551612,18446744073709551616]"), 8),
              HasSubstr("whole numbers"));
  EXPECT_THAT(refusal(two("[0,4]", "[18446744073709551611,18446744073709551615]"), 8),
              HasSubstr("within the 8"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("where its last tensor ends"));
}

// ---- Garbage ----

std::vector<std::string> seeds() {
  return {
      file_of("{}", ""),
      file_of(R"({"__metadata__":{"format":"pt"},"a.b":{"dtype":"F32","shape":[2,2],)"
              R"("data_offsets":[0,16]},"c":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}})",
              std::string(18, '\7')),
      file_of(R"({"e":{"dtype":"I64","shape":[0,4],"data_offsets":[0,0]},"u":{"x":[{"y":1}],)"
              R"("dtype":"U8","shape":[3],"data_offsets":[0,3]}}     )",
              "abc")};
}

// Whatever is read lies within the file, one tensor behind the other.
bool reads_well(const std::string& file) {
  std::uint64_t next = 0;
  try {
    for (const StoredTensor& tensor : read(file)) {
      EXPECT_GE(tensor.begin, std::max<std::uint64_t>(next, 8));
      EXPECT_GE(tensor.end, tensor.begin);
      EXPECT_LE(tensor.end, file.size());
      next = tensor.end;
    }
  } catch (const InputError&) {
    return false;
  }
  return true;
}

// The length of the head is put right again for half of them: else few would get past it.
TEST(SafetensorsHeader, EndsGarbageInAnInputErrorAndNothingElse) {
  const auto files = seeds();
  std::mt19937 random(20'252);
  int well = 0, badly = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string garbage = testing::mutated(
        files[random() % files.size()], files[random() % files.size()], random, testing::kOfJson);
    const std::size_t end = garbage.rfind('}');
    if (i % 2 == 0 && end != std::string::npos && end >= 8)
      garbage = file_of(std::string_view(garbage).substr(8, end - 7), garbage.substr(end + 1));
    ASSERT_NO_THROW(++(reads_well(garbage) ? well : badly)) << i;
  }
  EXPECT_GT(well, 100);
  EXPECT_GT(badly, 3000);
}

TEST(SafetensorsHeader, EndsEveryCutInAnInputErrorAndNothingElse) {
  for (const std::string& file : seeds())
    for (std::size_t cut = 0; cut < file.size(); ++cut)
      EXPECT_FALSE(reads_well(file.substr(0, cut))) << cut;
}

}  // namespace
}  // namespace headroom::weights::detail
