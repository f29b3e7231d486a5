#include "headroom/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "headroom/base/error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string write_error(const fs::path& path, std::string_view content) {
  try {
    write_file_atomically(path, content);
  } catch (const WriteError& error) {
    return error.what();
  }
  return "written";
}

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  EXPECT_EQ(::lstat(path.c_str(), &facts), 0) << path;
  return facts.st_mode;
}

// ---- Reading ----

TEST(ReadFile, GivesTheWholeFile) {
  const TemporaryFolder folder;
  const std::string content = std::string(20000, 'x') + '\0' + "end";
  EXPECT_EQ(read_file(folder.write("f", content)), content);
  EXPECT_EQ(read_file(folder.write("empty", "")), "");
}

TEST(ReadFile, ReturnsNothingForAnUnreadableFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.path() / "missing"), std::nullopt);
  EXPECT_EQ(read_file(folder.path()), std::nullopt);
}

TEST(ReadFile, ReadsProcWhoseSizesAreReportedAs0) {
  EXPECT_THAT(read_file("/proc/self/stat").value_or(""), HasSubstr("("));
}

TEST(ReadInput, NamesThePathAndTheReason) {
  const TemporaryFolder folder;
  for (const auto& [path, reason] : {std::pair(folder.path() / "gone", "No such file"),
                                     std::pair(folder.path(), "Is a directory")}) {
    try {
      (void)read_input(path);
      ADD_FAILURE() << path;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }
}

// ---- Writing ----

TEST(WriteFileAtomically, ReplacesTheContentAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const auto path = folder.write("state.json", "old and longer");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_THAT(folder.names(), ElementsAre("state.json"));
}

TEST(WriteFileAtomically, NeverShowsAReaderHalfAFile) {
  const TemporaryFolder folder;
  constexpr std::size_t kSize = 512 * 1024;
  const auto path = folder.write("f", std::string(kSize, 'a'));
  std::atomic<bool> done{false};
  std::atomic<int> reads{0}, halves{0};
  std::thread reader([&] {
    while (!done) {
      const std::string seen = read_file(path).value_or("");
      const bool whole = seen.size() == kSize && seen.find_first_not_of(seen[0]) == seen.npos;
      if (!whole) ++halves;
      ++reads;
    }
  });
  for (int i = 0; i < 60 || reads < 60; ++i)
    write_file_atomically(path, std::string(kSize, static_cast<char>('a' + i % 26)));
  done = true;
  reader.join();
  EXPECT_EQ(halves, 0) << "of " << reads;
}

TEST(WriteFileAtomically, LetsWritersOfOneFileFinishOneAfterTheOther) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "f";
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter)
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 10; ++i) write_file_atomically(path, std::string(100000, letter));
    });
  for (auto& writer : writers) writer.join();
  const std::string last = read_file(path).value_or("");
  EXPECT_EQ(last, std::string(100000, last.at(0)));
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(WriteFileAtomically, KeepsThePermissionsOfAnExistingFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("secret", "old");
  ::chmod(path.c_str(), 0640);
  write_file_atomically(path, "new");
  EXPECT_EQ(mode_of(path) & 07777, 0640U);
}

TEST(WriteFileAtomically, GivesANewFileTheUsualPermissions) {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(027);
  write_file_atomically(folder.path() / "f", "x");
  ::umask(mask);
  EXPECT_EQ(mode_of(folder.path() / "f") & 07777, 0640U);
}

// Renaming onto a link would have left the file it points to as it was.
TEST(WriteFileAtomically, WritesTheFileThatALinkPointsTo) {
  const TemporaryFolder folder;
  const auto target = folder.write("elsewhere/real", "old");
  fs::create_symlink("elsewhere/real", folder.path() / "link");
  write_file_atomically(folder.path() / "link", "new");
  EXPECT_EQ(read_file(target), "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
}

// `--out /dev/stdout`, typed by root, once put a file in the place of the device.
TEST(WriteFileAtomically, WritesIntoAPipeOrDeviceInsteadOfReplacingIt) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(pipe, "a sample\n");
  std::array<char, 64> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 9);
  ::close(reader);
  EXPECT_TRUE(S_ISFIFO(mode_of(pipe)));
  EXPECT_THAT(folder.names(), ElementsAre("pipe"));
}

TEST(WriteFileAtomically, LeavesTheOldFileWhenTheNewOneCannotBeWritten) {
  const TemporaryFolder folder;
  const auto path = folder.write("state.json", "old");
  const FileSizeLimit limit(4096);
  EXPECT_THAT(write_error(path, std::string(100000, 'x')), HasSubstr(path.string()));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(folder.names(), ElementsAre("state.json"));
}

TEST(WriteFileAtomically, SurvivesADiskThatIsReallyFull) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "only root can mount a small disk";
  const auto path = folder.write("state.json", "old");
  const std::string error = write_error(path, std::string(1000000, 'x'));
  const auto content = read_file(path);
  const auto names = folder.names();
  ::umount(folder.path().c_str());
  EXPECT_THAT(error, HasSubstr("No space left on device; free some space"));
  EXPECT_EQ(content, "old");
  EXPECT_THAT(names, ElementsAre("state.json"));
}

TEST(WriteFileAtomically, NamesAFolderThatDoesNotExist) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "missing" / "f";
  EXPECT_THAT(write_error(path, "x"), HasSubstr(path.string() + ": No such file or directory"));
  EXPECT_THAT(folder.names(), ElementsAre());
}

TEST(WriteFileAtomically, DoesNotReplaceAFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "d");
  EXPECT_THAT(write_error(folder.path() / "d", "x"), HasSubstr("directory"));
  EXPECT_THAT(folder.names(), ElementsAre("d"));
}

TEST(WriteAll, ReportsAFullDevice) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  EXPECT_THROW(write_all(full, "x", "standard output"), WriteError);
  ::close(full);
}

// ---- Where things are kept ----

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name), before_(environment(name)) {
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

TEST(StateDir, IsTheOneNamedElseXdgElseHome) {
  const Variable home("HOME", "/home/u"), xdg("XDG_STATE_HOME", nullptr),
      own("HEADROOM_STATE_DIR", nullptr);
  EXPECT_EQ(state_dir(), "/home/u/.local/state/headroom");
  const Variable with_xdg("XDG_STATE_HOME", "/x");
  EXPECT_EQ(state_dir(), "/x/headroom");
  const Variable with_own("HEADROOM_STATE_DIR", "/own");
  EXPECT_EQ(state_dir(), "/own");
  const Variable empty("HEADROOM_STATE_DIR", "");
  EXPECT_EQ(state_dir(), "/x/headroom");
}

TEST(Environment, TellsUnsetFromEmpty) {
  const Variable unset("HEADROOM_TEST_VARIABLE", nullptr);
  EXPECT_EQ(environment("HEADROOM_TEST_VARIABLE"), std::nullopt);
  const Variable empty("HEADROOM_TEST_VARIABLE", "");
  EXPECT_EQ(environment("HEADROOM_TEST_VARIABLE"), "");
}

}  // namespace
}  // namespace headroom
