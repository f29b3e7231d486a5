#include "headroom/base/host_memory.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

using namespace literals;
using headroom::testing::TemporaryFolder;

TEST(HostMemory, IsTheMachinesWithoutControlGroups) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable: 8192 kB\n");
  const HostMemory memory = host_memory(root.path());
  EXPECT_EQ(memory.limit, 16_GiB);
  EXPECT_EQ(memory.available, 8_MiB);
}

TEST(HostMemory, IsLimitedByTheTightestGroup) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  root.write("proc/self/cgroup", "0::/user/job\n");
  root.write("sys/fs/cgroup/user/memory.max", "4294967296\n");
  root.write("sys/fs/cgroup/user/memory.current", "3221225472\n");
  root.write("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 536870912\nslab 3\n");
  root.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  root.write("sys/fs/cgroup/user/job/memory.current", "3221225472\n");
  const HostMemory memory = host_memory(root.path());
  EXPECT_EQ(memory.limit, 4_GiB);
  EXPECT_EQ(memory.available, 1_GiB + 512_MiB);
}

TEST(HostMemory, AGroupOverItsLimitHasNothingLeft) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "1048576\n");
  root.write("sys/fs/cgroup/memory.current", "2097152\n");
  EXPECT_EQ(host_memory(root.path()).available, 0_B);
}

TEST(HostMemory, KnowsThisMachine) {
  const HostMemory memory = host_memory();
  ASSERT_TRUE(memory.limit && memory.available);
  EXPECT_GT(*memory.available, 10_MiB);
  EXPECT_LE(*memory.available, *memory.limit);
  EXPECT_LT(*host_memory_to_use(), *memory.limit);
}

}  // namespace
}  // namespace headroom
