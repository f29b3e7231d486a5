// The memory of one decision for the next: cards on which a process has just ended.

#include "headroom/gpu/recent_ends.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "headroom/base/file.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/temporary_folder.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Cards = std::set<Uuid>;

class RecentEnds : public ::testing::Test {
 protected:
  // Two cards; the second is used by these.
  static Machine used_by(const std::vector<ProcessIdentity>& users) {
    Machine machine = machine_of({card(0), card(1)});
    for (const ProcessIdentity& user : users) {
      machine.cards[1].processes->push_back(process(user.pid, 1_GiB));
      machine.cards[1].processes->back().start_ticks = user.start_ticks;
    }
    return machine;
  }
  [[nodiscard]] std::filesystem::path file() const {
    return folder_.path() / "state" / "seen-processes.json";
  }
  // Makes what was written last so much older.
  void age_by(double seconds) const {
    std::string text = read_file(file()).value();
    for (std::size_t at = 0; (at = text.find(R"("time":)", at)) != std::string::npos;) {
      at += 7;
      const std::size_t end = text.find_first_of(",}", at);
      const double then = std::stod(text.substr(at, end - at));
      text.replace(at, end - at, std::to_string(then - seconds));
    }
    write_file_atomically(file(), text);
  }

  const Uuid second_ = numbered(1);
  testing::TemporaryFolder folder_;
  SetEnvironment state_{"HEADROOM_STATE_DIR", (folder_.path() / "state").string()};
};

TEST_F(RecentEnds, NothingIsKnownTheFirstTime) {
  EXPECT_EQ(note_processes(used_by({})), Cards{});
  EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(RecentEnds, AProcessThatWasThereAndIsGoneIsAnEndOnItsCard) {
  Child child;
  EXPECT_EQ(note_processes(used_by({child.identity()})), Cards{});
  child.end();
  EXPECT_EQ(note_processes(used_by({})), Cards{second_});
}

TEST_F(RecentEnds, ALivingProcessIsNotAnEnd) {
  const Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  EXPECT_EQ(note_processes(used_by({child.identity()})), Cards{});
  EXPECT_EQ(note_processes(used_by({})), Cards{}) << "it left the card and lives";
}

TEST_F(RecentEnds, AZombieAndAReusedNumberHaveEnded) {
  const Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  ASSERT_TRUE(child.signal_until(SIGKILL, 'Z'));
  EXPECT_EQ(note_processes(used_by({})), Cards{second_});
  ProcessIdentity earlier = this_process();
  --earlier.start_ticks;
  static_cast<void>(note_processes(used_by({earlier})));
  EXPECT_EQ(note_processes(used_by({})), Cards{second_});
}

// The decision that noticed it once wrote it out of the file, and the next one knew nothing.
TEST_F(RecentEnds, AnEndIsKnownToEveryDecisionOfTheNextTenSeconds) {
  Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  child.end();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(note_processes(used_by({})), Cards{second_}) << i;
  age_by(6);
  EXPECT_EQ(note_processes(used_by({})), Cards{second_}) << "noticed 6 s ago";
  age_by(6);
  EXPECT_EQ(note_processes(used_by({})), Cards{}) << "noticed 12 s ago, though the file is younger";
}

TEST_F(RecentEnds, OlderObservationsAreIgnored) {
  Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  child.end();
  age_by(10.5);
  EXPECT_EQ(note_processes(used_by({})), Cards{});
}

TEST_F(RecentEnds, AClockThatWasSetBackSaysNothing) {
  Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  child.end();
  age_by(-3600);
  EXPECT_EQ(note_processes(used_by({})), Cards{});
}

TEST_F(RecentEnds, InvisibleProcessesAreNotRemembered) {
  Machine machine = used_by({});
  machine.cards[1].processes->push_back(hidden_process(1_GiB));
  static_cast<void>(note_processes(machine));
  EXPECT_EQ(note_processes(used_by({})), Cards{});
}

// "GPU-1" is no UUID, and yet the card's name: of a driver that does not tell it.
TEST_F(RecentEnds, ACardWithoutAProperUuidIsACardToo) {
  Child child;
  Machine machine = used_by({child.identity()});
  machine.cards[1].uuid = Uuid::from_driver("GPU-1");
  static_cast<void>(note_processes(machine));
  child.end();
  EXPECT_EQ(note_processes(used_by({})), Cards{Uuid::from_driver("GPU-1")});
}

TEST_F(RecentEnds, AnUnreadableFileCountsAsNoFile) {
  static_cast<void>(note_processes(used_by({})));
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"time": "now", "processes": []})",
        R"({"time": 1e300, "processes": []})", R"({"time": null, "processes": [3]})"}) {
    write_file_atomically(file(), text);
    EXPECT_EQ(note_processes(used_by({})), Cards{}) << text;
  }
  Child child;
  static_cast<void>(note_processes(used_by({child.identity()})));
  std::string text = read_file(file()).value();
  text.replace(text.find(R"("pid")"), 5, R"("pod")");
  write_file_atomically(file(), text);
  EXPECT_EQ(note_processes(used_by({})), Cards{}) << "another version's";
}

TEST_F(RecentEnds, AFolderThatCannotBeWrittenIsNoFailure) {
  const SetEnvironment nowhere("HEADROOM_STATE_DIR", "/proc/nowhere");
  EXPECT_EQ(note_processes(used_by({this_process()})), Cards{});
}

}  // namespace
}  // namespace headroom::gpu
