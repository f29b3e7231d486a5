#include "headroom/trace/input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom::trace {
namespace {

using headroom::testing::TemporaryFolder;

std::string digits(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; text.size() < count; ++i) text += std::to_string(i) + " ";
  text.resize(count);
  return text;
}

std::string read_in_steps(Input& input, std::size_t look, std::size_t take) {
  std::string text;
  while (true) {
    const std::string_view seen = input.peek(look);
    if (seen.empty()) return text;
    const std::string_view taken = seen.substr(0, take);
    text += taken;
    input.skip(taken.size());
  }
}

TEST(Input, GivesAFileFrontToBackInStepsOfAnySize) {
  const TemporaryFolder folder;
  const std::string text = digits(1'000'000);
  const auto path = folder.write("file", text);
  for (const std::size_t take : {1000UL, 65'537UL, 300'000UL, 2'000'000UL}) {
    Input input = Input::file(path);
    EXPECT_EQ(read_in_steps(input, take + 7, take), text) << take;
    EXPECT_EQ(input.position(), text.size());
    EXPECT_EQ(input.size(), text.size());
  }
}

TEST(Input, ShowsFewerBytesOnlyAtTheEnd) {
  const TemporaryFolder folder;
  Input input = Input::file(folder.write("file", "abcdef"));
  EXPECT_EQ(input.peek(4), "abcd");
  input.skip(3);
  EXPECT_EQ(input.peek(100), "def");
  EXPECT_EQ(input.position(), 3U);
}

TEST(Input, WaitsForAPipeUntilAllRequestedBytesArrive) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (int i = 0; i < 10; ++i) write_all(ends[1], "0123456789", "pipe");
    ::close(ends[1]);
  });
  Input input = Input::file("/dev/fd/" + std::to_string(ends[0]));
  EXPECT_EQ(input.peek(95).size(), 95U);
  EXPECT_EQ(input.peek(200).size(), 100U);
  EXPECT_FALSE(input.size()) << "a pipe has no length";
  writer.join();
  ::close(ends[0]);
}

TEST(Input, OfMemoryNamesItself) {
  Input input = Input::memory("seed 7", "xyz");
  Input moved = std::move(input);
  EXPECT_EQ(read_in_steps(moved, 2, 1), "xyz");
  EXPECT_EQ(moved.name(), "seed 7");
  EXPECT_EQ(moved.position(), 3U);
}

TEST(Input, GivesTheReasonIfAFileCannotBeRead) {
  const TemporaryFolder folder;
  try {
    static_cast<void>(Input::file(folder.path() / "missing"));
    FAIL() << "opened what does not exist";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(Input::file(folder.path())), InputError) << "a folder";
}

TEST(Input, CannotSkipBytesThatPeekDidNotReturn) {
  Input input = Input::memory("x", "abc");
  EXPECT_THROW(input.skip(4), InternalError);
}

}  // namespace
}  // namespace headroom::trace
