#include "headroom/base/sha256.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom {
namespace {

std::string hash(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

// Source: FIPS 180-4's examples, and `sha256sum`.
TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameForBytesInPieces) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t piece : {1, 3, 63, 64, 65, 200}) {
    Sha256 in_pieces;
    for (std::size_t i = 0; i < text.size(); i += piece) in_pieces.add(text.substr(i, piece));
    EXPECT_EQ(in_pieces.hex(), hash(text)) << piece;
  }
}

TEST(Sha256, RefusesAFileThatIsNotThere) {
  EXPECT_THROW(static_cast<void>(sha256_of_file("/nowhere/at/all")), InputError);
}

}  // namespace
}  // namespace headroom
