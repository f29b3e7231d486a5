// What each key of `headroom top` does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/top/pictures.h"

namespace headroom::cli {
namespace {

using namespace fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Page = Controls::Page;
using Typing = Controls::Typing;

class TopKeys : public ::testing::Test {
 protected:
  Request type(const std::string& keys) {
    Request last = Request::none;
    for (const char key : keys)
      last = press(controls_, letter(std::string(1, key).c_str()), picture_);
    return last;
  }
  Request hit(Key::Kind kind) { return press(controls_, {kind}, picture_); }
  [[nodiscard]] std::vector<pid_t> order() const {
    std::vector<pid_t> pids;
    for (const ProcessRow& row : shown_rows(picture_, controls_))
      pids.push_back(row.process ? row.process->pid : 0);
    return pids;
  }
  [[nodiscard]] pid_t selected() const {
    const auto rows = shown_rows(picture_, controls_);
    return rows.at(selected_row(rows, controls_)).process->pid;
  }

  TopKeys() {
    auto& rows = picture_.processes;
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i].started = picture_.wall - std::chrono::minutes(10 * ((i + 2) % 3));
  }

  Controls controls_;
  Picture picture_ =
      picture_of(3, {row(2, 30, 1_GiB, "carol", "python a.py"),
                     row(0, 20, 3_GiB, "alice", "python b.py"), row(1, 10, 2_GiB, "bob", "serve")});
};

TEST_F(TopKeys, SortByEachOrderAndBack) {
  EXPECT_THAT(order(), ElementsAre(20, 10, 30)) << "by memory";
  type("g");
  EXPECT_THAT(order(), ElementsAre(20, 10, 30)) << "by GPU";
  type("u");
  EXPECT_THAT(order(), ElementsAre(20, 10, 30)) << "by user";
  type("a");
  EXPECT_THAT(order(), ElementsAre(30, 10, 20)) << "the oldest first";
  type("p");
  EXPECT_THAT(order(), ElementsAre(10, 20, 30)) << "by PID";
  type("p");
  EXPECT_THAT(order(), ElementsAre(30, 20, 10)) << "the same key again reverses it";
  type("m");
  EXPECT_THAT(order(), ElementsAre(20, 10, 30));
  type("r");
  EXPECT_THAT(order(), ElementsAre(30, 10, 20));
}

TEST_F(TopKeys, SGoesThroughAllOrders) {
  std::vector<std::string> orders;
  for (int i = 0; i < 5; ++i) {
    type("s");
    orders.emplace_back(to_string(controls_.sort_by));
  }
  EXPECT_THAT(orders, ElementsAre("GPU", "user", "age", "PID", "memory"));
}

TEST_F(TopKeys, EqualRowsStandInTheOrderOfTheCards) {
  for (ProcessRow& row : picture_.processes) row.used = 1_GiB;
  EXPECT_THAT(order(), ElementsAre(20, 10, 30));
  type("r");
  EXPECT_THAT(order(), ElementsAre(20, 10, 30)) << "they are equal in both directions";
}

TEST_F(TopKeys, UnknownMemoryComesLast) {
  picture_.processes[1].used.reset();
  EXPECT_THAT(order(), ElementsAre(10, 30, 20));
}

TEST_F(TopKeys, FilterKeepsRowsWithAllWords) {
  type("/PYTHON");
  EXPECT_THAT(order(), ElementsAre(20, 30));
  type(" carol");
  EXPECT_THAT(order(), ElementsAre(30));
  hit(Key::Kind::enter);
  EXPECT_EQ(controls_.typing, Typing::nothing);
  EXPECT_THAT(order(), ElementsAre(30)) << "it stays";
  hit(Key::Kind::escape);
  EXPECT_EQ(order().size(), 3U);
}

TEST_F(TopKeys, FilterFindsPidsGpusLeasesAndTrainings) {
  picture_.processes[0].lease = "7f3a9c1e";
  picture_.processes[2].job = watch::JobStatus{.what = "train gpt2"};
  for (const auto& [text, pid] : std::vector<std::pair<std::string, pid_t>>{
           {"7f3a", 30}, {"gpt2", 10}, {"gpu0", 20}, {"30", 30}}) {
    type("/" + text);
    EXPECT_THAT(order(), ElementsAre(pid)) << text;
    hit(Key::Kind::escape);
  }
}

TEST_F(TopKeys, WhileAFilterIsTypedLettersAreText) {
  EXPECT_EQ(type("/q"), Request::none);
  EXPECT_EQ(controls_.filter, "q");
  hit(Key::Kind::backspace);
  hit(Key::Kind::backspace);
  press(controls_, letter("ß"), picture_);
  EXPECT_EQ(controls_.filter, "ß");
  hit(Key::Kind::backspace);
  EXPECT_EQ(controls_.filter, "") << "not half of a character";
}

TEST_F(TopKeys, ArrowsSelectAndStopAtTheEnds) {
  EXPECT_EQ(selected(), 20);
  hit(Key::Kind::up);
  EXPECT_EQ(selected(), 20);
  hit(Key::Kind::down);
  EXPECT_EQ(selected(), 10);
  type("jjj");
  EXPECT_EQ(selected(), 30);
  type("k");
  EXPECT_EQ(selected(), 10);
  hit(Key::Kind::home);
  EXPECT_EQ(selected(), 20);
  hit(Key::Kind::end);
  EXPECT_EQ(selected(), 30);
  hit(Key::Kind::page_up);
  EXPECT_EQ(selected(), 20);
  hit(Key::Kind::page_down);
  EXPECT_EQ(selected(), 30);
}

TEST_F(TopKeys, TheSelectedProcessStaysSelectedWhereverItGoes) {
  hit(Key::Kind::down);
  type("p");
  EXPECT_EQ(selected(), 10);
  picture_.processes.erase(picture_.processes.begin());
  EXPECT_EQ(selected(), 10);
  std::erase_if(picture_.processes, [](const ProcessRow& row) { return row.process->pid == 10; });
  EXPECT_EQ(selected(), 20) << "the one in its place";
}

TEST_F(TopKeys, TabSelectsAmongTheCards) {
  hit(Key::Kind::tab);
  hit(Key::Kind::down);
  hit(Key::Kind::end);
  EXPECT_EQ(controls_.card, 2U);
  EXPECT_EQ(selected(), 20);
  hit(Key::Kind::tab);
  hit(Key::Kind::down);
  EXPECT_EQ(controls_.card, 2U);
  EXPECT_EQ(selected(), 10);
}

TEST_F(TopKeys, PagesOpenAndClose) {
  for (const char* open : {"h", "?"}) {
    type(open);
    EXPECT_EQ(controls_.page, Page::help);
    EXPECT_EQ(type("q"), Request::none) << "q closes the page first";
    EXPECT_EQ(controls_.page, Page::machine);
  }
  EXPECT_EQ(hit(Key::Kind::enter), Request::explain);
  EXPECT_EQ(controls_.page, Page::details);
  EXPECT_EQ(controls_.to_end->process->pid, 20);
  hit(Key::Kind::escape);
  EXPECT_EQ(controls_.page, Page::machine);
  EXPECT_EQ(type("q"), Request::quit);
}

TEST_F(TopKeys, OnlyYesEndsAProcess) {
  for (const char* no : {"", "y", "no", "yess", "YES"}) {
    ASSERT_EQ(type("e"), Request::ask);
    controls_.typing = Typing::yes;  // as the command does if the process may be ended
    controls_.typed.clear();
    type(no);
    EXPECT_EQ(hit(Key::Kind::enter), Request::none) << no;
    EXPECT_EQ(controls_.message, "PID 20 is left alone") << no;
  }
  ASSERT_EQ(type("e"), Request::ask);
  controls_.typing = Typing::yes;
  controls_.typed.clear();
  type("yex");
  hit(Key::Kind::backspace);
  type("s");
  EXPECT_EQ(hit(Key::Kind::enter), Request::end);
  EXPECT_EQ(controls_.to_end->process->pid, 20);
}

TEST_F(TopKeys, EscapeLeavesTheProcessAlone) {
  type("e");
  controls_.typing = Typing::yes;
  controls_.typed = "yes";
  EXPECT_EQ(hit(Key::Kind::escape), Request::none);
  EXPECT_EQ(controls_.typing, Typing::nothing);
}

TEST_F(TopKeys, MemoryWithoutAProcessCannotBeEnded) {
  picture_.processes = {{.card = 0, .command = "no listed process", .used = 1_GiB}};
  EXPECT_EQ(type("e"), Request::none);
  EXPECT_THAT(controls_.message, HasSubstr("no process that is visible"));
  picture_.processes.clear();
  EXPECT_EQ(type("e"), Request::none);
  EXPECT_EQ(controls_.message, "there is no process to select");
  hit(Key::Kind::redraw);
  EXPECT_EQ(controls_.message, "") << "until the next key";
}

TEST_F(TopKeys, ReachEveryStateWithoutAnyProcessOrCard) {
  picture_ = {};
  std::string keys = "qh?smguapr/jke";
  for (int round = 0; round < 200; ++round) {
    type(std::string(1, keys[static_cast<std::size_t>(round * 7 % 14)]));
    hit(static_cast<Key::Kind>(1 + round % 11));
    EXPECT_FALSE(draw(picture_, controls_, canvas(80, 24)).empty());
  }
}

}  // namespace
}  // namespace headroom::cli
