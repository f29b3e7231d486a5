// Files that a run changes: their owner gets them back and never loses own changes.

#include "headroom/edit/edited_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom::edit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class EditingFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string text(const std::string& name = "c.yaml") const {
    return read_file(folder_.path() / name).value_or("none");
  }
  // A run that changes the file and is killed; `then` happens in it first.
  void killed_run(const std::string& content) {
    const pid_t child = ::fork();
    if (child == 0) {
      EditedFiles files;
      files.put({{file_, content}});
      ::_exit(0);  // without destructors
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }

  headroom::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.write("c.yaml", "b: 64\n");
};

TEST_F(EditingFiles, AreChangedAndPutBack) {
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  EXPECT_EQ(text(), "b: 32\n");
  EXPECT_EQ(text("c.yaml.headroom-before"), "b: 64\n");
  files.put({{file_, "b: 16\n"}});
  EXPECT_EQ(text(), "b: 16\n");
  EXPECT_THAT(files.put_back(), IsEmpty());
  EXPECT_EQ(text(), "b: 64\n");
  EXPECT_THAT(folder_.names(), ElementsAre("c.yaml"));
}

TEST_F(EditingFiles, ArePutBackByTheDestructor) {
  {
    EditedFiles files;
    files.put({{file_, "b: 32\n"}});
  }
  EXPECT_EQ(text(), "b: 64\n");
  EXPECT_THAT(folder_.names(), ElementsAre("c.yaml"));
}

TEST_F(EditingFiles, KeepTheirMode) {
  ::chmod(file_.c_str(), 0640);
  const auto mode = [](const std::filesystem::path& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 0777 : 0U;
  };
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  EXPECT_EQ(mode(file_), 0640U);
  EXPECT_EQ(mode(file_.string() + ".headroom-before"), 0640U);
  (void)files.put_back();
  EXPECT_EQ(mode(file_), 0640U);
}

TEST_F(EditingFiles, GetTheirOriginalsBackIfNotNamedAgain) {
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  files.put({});
  EXPECT_EQ(text(), "b: 64\n");
}

TEST_F(EditingFiles, StayIfAnotherProgramChangedThemAndTheOriginalIsKept) {
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  folder_.write("c.yaml", "the user's\n");
  EXPECT_THROW(files.put({{file_, "b: 16\n"}}), WriteError);
  EXPECT_THAT(files.put_back(), ElementsAre(HasSubstr("was changed by another program")));
  EXPECT_EQ(text(), "the user's\n");
  EXPECT_EQ(text("c.yaml.headroom-original"), "b: 64\n");
  EXPECT_THAT(folder_.names(), UnorderedElementsAre("c.yaml", "c.yaml.headroom-original"));
}

TEST_F(EditingFiles, StayDeletedIfDeletedMeanwhile) {
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  std::filesystem::remove(file_);
  EXPECT_THAT(files.put_back(), ElementsAre(HasSubstr("c.yaml.headroom-original")));
  EXPECT_THAT(folder_.names(), ElementsAre("c.yaml.headroom-original"));
}

TEST_F(EditingFiles, AreRestoredByTheNextRunAfterAKill) {
  killed_run("b: 32\n");
  EXPECT_EQ(text(), "b: 32\n");
  EXPECT_THAT(restore_leftovers({file_}), ElementsAre(HasSubstr("was restored")));
  EXPECT_EQ(text(), "b: 64\n");
  EXPECT_THAT(folder_.names(), ElementsAre("c.yaml"));
  EXPECT_THAT(restore_leftovers({file_}), IsEmpty());
}

TEST_F(EditingFiles, StayAfterAKillIfAnotherProgramChangedThemSince) {
  killed_run("b: 32\n");
  folder_.write("c.yaml", "the user's\n");
  std::filesystem::last_write_time(
      file_, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(restore_leftovers({file_}), ElementsAre(HasSubstr("stays as it is")));
  EXPECT_EQ(text(), "the user's\n");
  EXPECT_EQ(text("c.yaml.headroom-original"), "b: 64\n");
}

TEST_F(EditingFiles, AreRefusedWhileAnotherRunEditsThem) {
  EditedFiles files;
  files.put({{file_, "b: 32\n"}});
  EXPECT_THROW(restore_leftovers({file_}), BusyError);
  EditedFiles other;
  EXPECT_THROW(other.put({{file_, "b: 16\n"}}), BusyError);
  EXPECT_EQ(text(), "b: 32\n");
}

TEST_F(EditingFiles, MustExist) {
  EditedFiles files;
  EXPECT_THROW(files.put({{folder_.path() / "none", "x"}}), InputError);
  EXPECT_THAT(restore_leftovers({folder_.path() / "none"}), IsEmpty());
}

}  // namespace
}  // namespace headroom::edit
