// Places in the line as files: their contents, their order, and whether the waiter still looks.

#include "headroom/lease/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "headroom/base/file.h"
#include "headroom/lease/detail/locked_file.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/lease_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::filesystem::path only_wait_file(const Directory& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().extension() == ".wait") return entry.path();
  return {};
}

void set_time(const std::filesystem::path& path, timespec time) {
  const timespec times[2] = {time, time};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST_F(LeaseFolder, AWaiterNamesItsPidNamespace) {
  const PlaceInQueue mine = place();
  const Waiter waiter = directory_.contents().waiting.at(0);
  EXPECT_EQ(waiter.id, mine.id());
  EXPECT_TRUE(is_this_pid_namespace(waiter.pid_namespace));
  EXPECT_FALSE(is_this_pid_namespace(0)) << "where it is not told";
}

// As an earlier version wrote it.
TEST_F(LeaseFolder, AWaiterWithoutANamespaceHasNoValidNumber) {
  const PlaceInQueue mine = place();
  std::string text = read_input(only_wait_file(directory_));
  const std::size_t at = text.find(",\"pid_namespace\":");
  text.erase(at, text.find_first_of(",}", at + 1) - at);
  const int file = detail::make_locked_file(directory_.path(), "0badc0de.wait", text);
  const Contents now = directory_.contents();
  ASSERT_THAT(now.waiting, SizeIs(2));
  for (const Waiter& waiter : now.waiting)
    EXPECT_EQ(is_this_pid_namespace(waiter.pid_namespace), waiter.id == mine.id());
  ::close(file);
}

TEST_F(LeaseFolder, TheCreationTimeIsTheKernels) {
  const WallTime before = std::chrono::system_clock::now() - std::chrono::seconds(1);
  const PlaceInQueue mine = place();
  set_time(only_wait_file(directory_), {.tv_sec = 5, .tv_nsec = 0});
  const auto born = directory_.contents().waiting.at(0).born;
  if (!born) GTEST_SKIP() << "this file system notes no births";
  EXPECT_GE(*born, before);
}

// Its touches may be set ahead: so much would keep a stopped one's place for ever.
TEST_F(LeaseFolder, AWaiterWithATouchInTheFutureDoesNotCount) {
  const PlaceInQueue mine = place();
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec += 5;
  set_time(only_wait_file(directory_), time);
  EXPECT_FALSE(directory_.contents().waiting.at(0).looking);
}

TEST_F(LeaseFolder, PlacesAreInTheOrderOfTheirTickets) {
  const PlaceInQueue first = place();
  const PlaceInQueue second = place();
  EXPECT_LT(first.ticket(), second.ticket());
  const Contents now = directory_.contents();
  ASSERT_THAT(now.waiting, SizeIs(2));
  EXPECT_EQ(now.waiting[0].ticket, first.ticket());
  EXPECT_EQ(now.waiting[0].wish.need, 3_GiB);
  EXPECT_EQ(now.waiting[0].wish.count, 2);
  EXPECT_EQ(now.waiting[0].wish.cards, (std::vector{uuid_of(0), uuid_of(1)}));
  EXPECT_TRUE(now.waiting[0].looking);
}

TEST_F(LeaseFolder, APlaceEndsWithItsProcess) {
  Child child([&] { static_cast<void>(new PlaceInQueue(place())); });
  ASSERT_TRUE(child.is_ready());
  EXPECT_THAT(directory_.contents().waiting, SizeIs(1));
  child.kill();
  EXPECT_THAT(directory_.contents().waiting, IsEmpty());
}

TEST_F(LeaseFolder, AWaiterWithoutALookForTenSecondsDoesNotCount) {
  const PlaceInQueue mine = place();
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec -= 11;
  set_time(only_wait_file(directory_), time);
  EXPECT_FALSE(directory_.contents().waiting.at(0).looking);
  mine.touch();
  EXPECT_TRUE(directory_.contents().waiting.at(0).looking);
}

// The file has the monotonic clock's time, not the wall clock's, which may be set.
TEST_F(LeaseFolder, AClockJumpDoesNotStopAWaiter) {
  const PlaceInQueue mine = place();
  struct stat facts {};
  ASSERT_EQ(::stat(only_wait_file(directory_).c_str(), &facts), 0);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  EXPECT_LE(std::abs(now.tv_sec - facts.st_mtim.tv_sec), 5);
}

}  // namespace
}  // namespace headroom::lease
