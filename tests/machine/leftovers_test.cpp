#include "headroom/machine/leftovers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace headroom::machine {
namespace {

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine on which process 100 lives, and a /dev/shm of it.
class SharedMemory : public ::testing::Test {
 protected:
  SharedMemory() {
    ::setenv("HEADROOM_LEASE_DIR", (shm_.path() / "no-leases").c_str(), 1);
    proc_.write("stat", "btime 1\n");
    proc_.write("100/stat", "100 (python) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0\n");
    fs::create_directories(proc_.path() / "self/ns");
    fs::create_symlink("pid:[4026531836]", proc_.path() / "self/ns/pid");
    maps("");
  }

  void maps(const std::string& file) const {
    proc_.write("100/maps", "7f0000000000-7f0000001000 rw-s 00000000 00:17 9    " + file + "\n");
  }
  [[nodiscard]] std::string in_shm(const std::string& name) const { return shm_.path() / name; }
  [[nodiscard]] Leftovers remove(bool search_harder = true) const {
    return remove_leftovers(ProcessTable(proc_.path()), search_harder, shm_.path());
  }

  TemporaryFolder proc_, shm_;
};

TEST_F(SharedMemory, IsRemovedIfItsCreatorEndedAndNoProcessMapsIt) {
  shm_.write("torch_99_abc_0", std::string(4096, 'x'));
  const Leftovers leftovers = remove();
  EXPECT_THAT(shm_.names(), IsEmpty());
  EXPECT_EQ(leftovers.returned, Bytes{4096});
  EXPECT_THAT(leftovers.done, ElementsAre("removed " + in_shm("torch_99_abc_0") + " (4.0 KiB)"));
}

TEST_F(SharedMemory, StaysWithoutForce) {
  shm_.write("torch_99_abc_0", "x");
  EXPECT_THAT(remove(false).done, IsEmpty());
  EXPECT_THAT(shm_.names(), ElementsAre("torch_99_abc_0"));
}

TEST_F(SharedMemory, StaysWhileItsCreatorLives) {
  shm_.write("torch_100_abc_0", "x");
  EXPECT_THAT(remove().done, IsEmpty());
  EXPECT_THAT(shm_.names(), ElementsAre("torch_100_abc_0"));
}

TEST_F(SharedMemory, StaysWhileAProcessMapsIt) {
  shm_.write("torch_99_abc_0", "x");
  maps(in_shm("torch_99_abc_0"));
  EXPECT_THAT(remove().done, IsEmpty());
  EXPECT_THAT(shm_.names(), ElementsAre("torch_99_abc_0"));
}

TEST_F(SharedMemory, OfOtherProgramsStays) {
  for (const char* name :
       {"torch_", "torch_99", "torch_x_1_0", "torch_-1_1_0", "psm_99_1_0", "sem.a"})
    shm_.write(name, "x");
  EXPECT_THAT(remove().done, IsEmpty());
  EXPECT_EQ(shm_.names().size(), 6U);
}

TEST_F(SharedMemory, StaysIfAProcessCannotBeInspected) {
  shm_.write("torch_99_abc_0", "x");
  fs::remove(proc_.path() / "100/maps");
  EXPECT_THAT(remove().done, ElementsAre(HasSubstr("left shared memory alone")));
  EXPECT_THAT(shm_.names(), ElementsAre("torch_99_abc_0"));
}

// A container often shares /dev/shm with the machine (--ipc=host) and sees none of its processes.
TEST_F(SharedMemory, StaysInAContainer) {
  shm_.write("torch_99_abc_0", "x");
  fs::remove(proc_.path() / "self/ns/pid");
  fs::create_symlink("pid:[4026532999]", proc_.path() / "self/ns/pid");
  EXPECT_THAT(remove().done, ElementsAre(HasSubstr("from this container")));
  EXPECT_THAT(shm_.names(), ElementsAre("torch_99_abc_0"));
}

}  // namespace
}  // namespace headroom::machine
