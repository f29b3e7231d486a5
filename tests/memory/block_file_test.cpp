#include "headroom/memory/detail/block_file.h"

#include <gmock/gmock.h>

#include <string>

#include "headroom/base/error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::memory::detail {
namespace {

class BlockFileTest : public ::testing::Test {
 protected:
  std::string content(const BlockFile::Block& block) {
    std::string bytes(static_cast<std::size_t>(block.size), ' ');
    file_.read(block, bytes);
    return bytes;
  }
  const testing::TemporaryFolder folder_;
  BlockFile file_{folder_.path()};
};

TEST_F(BlockFileTest, GivesBlocksBack) {
  const auto a = file_.keep(std::string("first")), b = file_.keep(std::string("the second"));
  EXPECT_EQ(content(b), "the second");
  EXPECT_EQ(content(a), "first");
}

TEST_F(BlockFileTest, UsesTheSpaceOfForgottenBlocksAgain) {
  const auto keep = [&](std::size_t size) { return file_.keep(std::string(size, 'x')); };
  const auto a = keep(10), b = keep(10), c = keep(10), d = keep(10);
  file_.forget(b);
  EXPECT_EQ(keep(4).at, b.at);
  EXPECT_EQ(keep(6).at, b.at + 4);
  file_.forget(c);
  file_.forget(a);
  EXPECT_EQ(keep(11).at, d.at + 10) << "no gap is long enough";
  file_.forget({b.at, 4});
  file_.forget({b.at + 4, 6});
  EXPECT_EQ(keep(30).at, a.at) << "neighbouring gaps are one";
  EXPECT_EQ(content(d), std::string(10, 'x'));
}

TEST_F(BlockFileTest, KeepsNothingOnAFullDisk) {
  const auto a = file_.keep(std::string("first"));
  {
    const testing::FileSizeLimit full(100);
    EXPECT_THROW((void)file_.keep(std::string(200, 'x')), WriteError);
  }
  EXPECT_EQ(file_.keep(std::string("second")).at, a.size);
  EXPECT_EQ(content(a), "first");
}

TEST_F(BlockFileTest, SaysWhatIsNotThere) {
  EXPECT_THROW(content({100, 5}), InputError);
  EXPECT_THROW(BlockFile("/nowhere/at/all"), WriteError);
}

}  // namespace
}  // namespace headroom::memory::detail
