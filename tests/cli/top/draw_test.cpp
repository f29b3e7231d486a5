// What `headroom top` draws, without a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/top/pictures.h"

namespace headroom::cli {
namespace {

using namespace fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

watch::JobStatus training(pid_t pid) {
  return {.pid = pid,
          .start_ticks = pid,
          .what = "train gpt2",
          .step = 17,
          .steps = 2000,
          .loss = 3.4123,
          .micro_batch = 4,
          .batch = 32,
          .plan = "micro-batch 4, checkpointing",
          .ooms_survived = 2,
          .rows_per_s = 81.5};
}

TEST(TopScreen, FillsTheTerminalExactly) {
  for (const int width : {60, 61, 79, 80, 99, 120, 200, 500})
    for (const int height : {20, 24, 50}) {
      const Screen screen = draw(big_picture(), {}, canvas(width, height));
      ASSERT_EQ(screen.size(), static_cast<std::size_t>(height)) << width;
      for (const Line& line : screen)
        EXPECT_EQ(cells_of(line), width) << text_of(line) << " at " << height;
    }
}

TEST(TopScreen, FitsIntoATerminalOfAnyWidth) {
  Picture picture = big_picture();
  picture.processes[30].job = training(1031);
  picture.warnings = {"the driver is old"};
  picture.advice = "GPU 3 is idle";
  Controls controls;
  ASSERT_EQ(press(controls, {Key::Kind::enter}, picture), Request::explain);
  for (const auto page : {Controls::Page::machine, Controls::Page::details, Controls::Page::help})
    for (int width = 1; width < 60; ++width)
      for (const int height : {1, 2, 5, 24}) {
        controls.page = page;
        for (const Line& line : draw(picture, controls, canvas(width, height)))
          ASSERT_EQ(cells_of(line), width) << text_of(line) << " at " << height;
      }
}

TEST(TopScreen, ShowsAQuestionMarkForACharacterThatIsNotOneCellWide) {
  const Picture picture =
      picture_of(1, {row(0, 7, 1_GiB, "größe", "python \u8a13\u7df4.py e\u0301 \xff.py")});
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))),
              AllOf(HasSubstr(" größe "), HasSubstr(" python ??.py e? ?.py")));
}

TEST(TopScreen, ShowsAllFiguresOfACardInEightyColumns) {
  const Screen screen = draw(picture_of(1), {}, canvas(80, 24));
  EXPECT_EQ(texts(screen)[1],
            "GPU name       memory       used/total  usable load temp power memory   load");
  EXPECT_THAT(texts(screen)[2], AllOf(HasSubstr("  0 RTX 4090 "), HasSubstr(" 12.0/24.0G"),
                                      HasSubstr(" 12.0G  98%  61C  231W ")));
  EXPECT_THAT(texts(screen)[2], HasSubstr("▄"));
}

TEST(TopScreen, SixtyColumnsHaveMemoryUsableLoadAndTemperature) {
  const std::string text = whole(draw(picture_of(1), {}, canvas(60, 20)));
  EXPECT_THAT(text, AllOf(HasSubstr("12.0/24.0G"), HasSubstr("12.0G"), HasSubstr("98%"),
                          HasSubstr("61C"), Not(HasSubstr("231W"))));
}

TEST(TopScreen, LeavesOutWhatNoCardTells) {
  Picture picture = picture_of(2);
  for (gpu::Card& card : picture.machine.cards) {
    card.utilization.reset();
    card.temperature_c.reset();
  }
  const std::string text = whole(draw(picture, {}, canvas(120, 24)));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("load")), Not(HasSubstr("temp")), HasSubstr("power")));
}

TEST(TopScreen, ShowsAQuestionMarkForWhatOneCardDoesNotTell) {
  Picture picture = picture_of(2);
  picture.machine.cards[1].utilization.reset();
  picture.machine.cards[1].memory.reset();
  EXPECT_THAT(texts(draw(picture, {}, canvas(80, 24)))[3],
              AllOf(HasSubstr("memory unknown"), HasSubstr("   ?    ?  61C")));
}

TEST(TopScreen, AStaleCardSaysHowOldItsFiguresAre) {
  Picture picture = picture_of(2);
  picture.machine.cards[1].sampled = picture.taken - std::chrono::seconds(17);
  const auto lines = texts(draw(picture, {}, canvas(80, 24)));
  EXPECT_THAT(lines[2], Not(HasSubstr("stale")));
  EXPECT_THAT(lines[3],
              AllOf(HasSubstr("stale 17 s"), HasSubstr("12.0/24.0G"), Not(HasSubstr("98%"))));
  picture.machine.cards[1].sampled.reset();
  EXPECT_THAT(texts(draw(picture, {}, canvas(80, 24)))[3], HasSubstr("no data"));
}

TEST(TopScreen, DataOfALongIntervalIsNotStale) {
  Picture picture = picture_of(1);
  picture.interval = Seconds(10);
  picture.machine.cards[0].sampled = picture.taken - std::chrono::seconds(9);
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))), Not(HasSubstr("stale")));
  picture.interval = Seconds(1);
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))), HasSubstr("stale"));
}

TEST(TopScreen, ACardInTroubleSaysWhich) {
  Picture picture = picture_of(1);
  picture.machine.cards[0].trouble = "GPU is lost";
  EXPECT_THAT(texts(draw(picture, {}, canvas(80, 24)))[2], HasSubstr("GPU is lost"));
}

TEST(TopScreen, AFullCardIsRedAndAnEmptyOneGreen) {
  Picture picture = picture_of(1);
  const auto colour_of_bar = [&] { return draw(picture, {}, canvas(80, 24))[2].at(4).colour; };
  picture.machine.cards[0].memory->free = 1_GiB;
  EXPECT_EQ(colour_of_bar(), Colour::red);
  picture.machine.cards[0].memory->free = 20_GiB;
  EXPECT_EQ(colour_of_bar(), Colour::green);
}

TEST(TopScreen, WithoutUtf8EveryCharacterIsAscii) {
  Picture picture = big_picture();
  picture.processes.back().command = "python größe.py";
  picture.processes[30].job = training(1031);
  picture.advice = "GPU 3 is idle";
  picture.warnings = {"the driver is naïve"};
  const std::string text = whole(draw(picture, {}, canvas(120, 60, /*unicode=*/false)));
  for (const char c : text) ASSERT_LT(static_cast<unsigned char>(c), 0x80U) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("gr??e.py"), HasSubstr("##")));
}

TEST(TopScreen, ShowsATrainingBelowItsProcess) {
  Picture picture = picture_of(1, {row(0, 7, 9_GiB)});
  picture.processes[0].job = training(7);
  const auto lines = texts(draw(picture, {}, canvas(120, 24)));
  EXPECT_THAT(lines[5], HasSubstr(" headroom train gpt2"));
  EXPECT_EQ(lines[6],
            "    step 17/2000 · loss 3.412 · survived 2 OOMs · batch 32 · "
            "micro-batch 4, checkpointing · 81.5 rows/s");
}

TEST(TopScreen, LeavesOutTheFolderOfAProgram) {
  EXPECT_THAT(whole(draw(picture_of(1, {row(0, 7, 1_GiB, "bob", "/opt/venv/bin/python a/b.py")}),
                         {}, canvas(80, 24))),
              HasSubstr("    ? python a/b.py"));
}

TEST(TopScreen, ATrainingBeforeItsFirstStepIsStarting) {
  EXPECT_EQ(job_text({.what = "train gpt2"}, canvas(80, 24).terminal), "starting");
}

TEST(TopScreen, SixteenCardsAndFortyProcessesScroll) {
  Controls controls;
  const std::string top = whole(draw(big_picture(), controls, canvas(80, 20)));
  EXPECT_THAT(top, AllOf(HasSubstr("GPU 1-7/16"), HasSubstr(" 1-8/40"), HasSubstr("3.9G")));
  controls.row = 39;
  const std::string end = whole(draw(big_picture(), controls, canvas(80, 20)));
  EXPECT_THAT(end, AllOf(HasSubstr(" 33-40/40"), HasSubstr(" 100M "), Not(HasSubstr("3.9G"))));
  controls.is_on_cards = true;
  controls.card = 15;
  EXPECT_THAT(whole(draw(big_picture(), controls, canvas(80, 20))), HasSubstr("GPU 10-16/16"));
}

TEST(TopScreen, TheSelectedProcessIsReversedAndNothingElseButTheKeys) {
  const Picture picture = picture_of(1, {row(0, 11, 3_GiB), row(0, 12, 2_GiB)});
  Controls controls;
  press(controls, {Key::Kind::down}, picture);
  const Screen screen = draw(picture, controls, canvas(80, 24));
  EXPECT_TRUE(is_selected(line_with(screen, " 12 alice")));
  EXPECT_FALSE(is_selected(line_with(screen, " 11 alice")));
  press(controls, {Key::Kind::tab}, picture);
  const Screen cards = draw(picture, controls, canvas(80, 24));
  EXPECT_TRUE(is_selected(line_with(cards, "RTX 4090")));
  EXPECT_FALSE(is_selected(line_with(cards, " 12 alice")));
}

TEST(TopScreen, ShowsLeasesWhenThereAreSome) {
  Picture picture = picture_of(1, {row(0, 11, 3_GiB)});
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))), Not(HasSubstr("lease")));
  picture.processes[0].lease = "7f3a9c1e";
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))),
              AllOf(HasSubstr("lease"), HasSubstr("7f3a9c1e python")));
}

TEST(TopScreen, ShowsTheQueueWithNeedsAndReasons) {
  Picture picture = picture_of(1);
  for (int i = 1; i <= 3; ++i) {
    machine::WaitingRow waiting;
    waiting.position = i;
    waiting.pid = 500 + i;
    waiting.waiter.wish.need = 20_GiB;
    waiting.waiter.since = picture.wall - std::chrono::seconds(200);
    waiting.why = "best is GPU 0 with 12.00 GiB usable, short by 8.00 GiB";
    picture.waiting.push_back(waiting);
  }
  picture.waiting[0].waiter.wish.count = 2;
  const std::string text = whole(draw(picture, {}, canvas(120, 24)));
  EXPECT_THAT(text, AllOf(HasSubstr("3 jobs wait, the first 2 of them (headroom queue)"),
                          HasSubstr("1. PID 501"),
                          HasSubstr("needs 20.00 GiB x 2, waits 3m20s: "
                                    "best is GPU 0 with")));
  EXPECT_THAT(whole(draw(picture, {}, {.terminal = canvas(120, 0).terminal})),
              HasSubstr("3. PID 503"));
}

TEST(TopScreen, HasOneLineOfAdvice) {
  Picture picture = picture_of(1);
  picture.advice = "GPU 1 is idle";
  EXPECT_THAT(texts(draw(picture, {}, canvas(80, 24)))[22], "→ GPU 1 is idle");
  Controls controls;
  controls.message = "ended PID 7";
  EXPECT_THAT(texts(draw(picture, controls, canvas(80, 24)))[22], "ended PID 7");
}

TEST(TopScreen, LongAdviceHasTwoLines) {
  Picture picture = picture_of(1);
  picture.advice =
      "GPU 0 computes nothing now, but PID 31580 alice 2.64 GiB (python serve.py) holds "
      "memory on it";
  const auto lines = texts(draw(picture, {}, canvas(80, 24)));
  EXPECT_EQ(lines[21],
            "→ GPU 0 computes nothing now, but PID 31580 alice 2.64 GiB (python serve.py)");
  EXPECT_EQ(lines[22], "  holds memory on it");
}

TEST(TopScreen, ANarrowTitleKeepsTheFreeMemory) {
  EXPECT_THAT(texts(draw(picture_of(8), {}, canvas(60, 20)))[0],
              HasSubstr("Headroom · 8 GPUs · 96.00 GiB of 192.00 GiB free"));
  EXPECT_THAT(texts(draw(picture_of(8), {}, canvas(120, 20)))[0], HasSubstr("driver 580.65.06"));
}

TEST(TopScreen, WithoutADriverSaysWhy) {
  Picture picture;
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))), HasSubstr("waiting for the GPU driver"));
  picture.machine.why_no_driver = "no NVIDIA driver was found";
  EXPECT_THAT(whole(draw(picture, {}, canvas(80, 24))), HasSubstr("no NVIDIA driver was found"));
}

TEST(TopScreen, AsTextItHasEveryProcessAndNoKeys) {
  const Screen screen = draw(big_picture(), {}, {.terminal = canvas(140, 0).terminal});
  EXPECT_EQ(screen.size(), 1U + 17U + 1U + 41U);
  for (const Line& line : screen)
    for (const Span& span : line) EXPECT_FALSE(span.reverse) << span.text;
}

TEST(TopScreen, ItsPagesFitIntoASmallTerminal) {
  Controls controls;
  controls.page = Controls::Page::help;
  const Screen help = draw(big_picture(), controls, canvas(60, 20));
  ASSERT_EQ(help.size(), 20U);
  for (const char* key : {"q, Ctrl-C", "Enter", "Ctrl-L", "Ctrl-Z", "Esc back"})
    EXPECT_THAT(whole(help), HasSubstr(key));
  for (const Line& line : help) EXPECT_EQ(cells_of(line), 60);
}

TEST(TopScreen, DetailsHaveTheWholeCommandAndTheClass) {
  Picture picture = picture_of(1, {row(0, 11, 3_GiB, "alice", "python " + std::string(90, 'x'))});
  Controls controls;
  ASSERT_EQ(press(controls, {Key::Kind::enter}, picture), Request::explain);
  controls.explanation = {"orphan", "its launcher is gone", "end it"};
  EXPECT_THAT(whole(draw(picture, controls, canvas(80, 24))),
              AllOf(HasSubstr(std::string(60, 'x')), HasSubstr("3.00 GiB on GPU 0"),
                    HasSubstr("its launcher is gone")));
  picture.processes.clear();
  EXPECT_THAT(whole(draw(picture, controls, canvas(80, 24))), HasSubstr("it has left the card"));
}

TEST(TopScreen, ASizeIsBrief) {
  EXPECT_EQ(brief(0_B), "0");
  EXPECT_EQ(brief(1_KiB), "<1M");
  EXPECT_EQ(brief(512_MiB), "512M");
  EXPECT_EQ(brief(1000_MiB), "1.0G");
  EXPECT_EQ(brief(10_GiB + 200_MiB), "10.2G");
  EXPECT_EQ(brief(141_GiB), "141G");
  EXPECT_EQ(brief_of(31_GiB, 31_GiB + 400_MiB), "31.0/31.4G");
  EXPECT_EQ(brief_of(31_GiB, 141_GiB), "31/141G");
}

}  // namespace
}  // namespace headroom::cli
