#include "headroom/trace/plain_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/events_of.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using headroom::testing::TemporaryFolder;
using testing::all_events;
using testing::alloc;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::event_of;
using testing::events_of;
using testing::free_requested;
using ::testing::HasSubstr;
using testing::input_error_of;
using testing::open_bytes;

TEST(PlainReader, ReadsEveryKindOfLine) {
  EXPECT_THAT(events_of("a 7 1024\na 8 0 3\nf 7\ne\nr 8 3\ny\ny 3\nP\nB 5\nE 5\nR 5\n"),
              ElementsAre(alloc(7, Bytes{1024}), alloc(8, Bytes{0}, 1), free_requested(7),
                          event_of(Kind::empty_cache), event_of(Kind::record_stream, 8, {}, 1),
                          event_of(Kind::complete_events, 0, {}, kAllStreams),
                          event_of(Kind::complete_events, 0, {}, 1), event_of(Kind::reset_peaks),
                          event_of(Kind::begin_pool, 5), event_of(Kind::end_pool, 5),
                          event_of(Kind::release_pool, 5)));
}

TEST(PlainReader, KeepsSettingsAsOneText) {
  const auto trace = open_bytes("c max_split_size_mb:64, expandable_segments:True  # why\nc\n");
  const auto events = all_events(*trace);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, Kind::settings);
  EXPECT_EQ(trace->names().text(events[0].operation),
            "max_split_size_mb:64, expandable_segments:True");
  EXPECT_EQ(trace->names().text(events[1].operation), "") << "nothing is named";
}

TEST(PlainReader, LeavesOutCommentsAndBlankLines) {
  EXPECT_THAT(events_of("# a trace\n\n  \t\n  a 1 2 # first\n\tf\t1#gone\n"),
              ElementsAre(alloc(1, Bytes{2}), free_requested(1)));
  EXPECT_TRUE(events_of("").empty());
  EXPECT_TRUE(events_of("# nothing").empty());
}

TEST(PlainReader, TakesLinesOfWindowsAndALastLineWithoutAnEnd) {
  EXPECT_THAT(events_of("a 1 2\r\n\r\nf 1\r\ne"),
              ElementsAre(alloc(1, Bytes{2}), free_requested(1), event_of(Kind::empty_cache)));
}

TEST(PlainReader, NumbersStreamsInTheOrderOfTheirAppearance) {
  const auto events = events_of("a 1 1 94000\na 2 1 0\na 3 1 7\na 4 1 94000\ny 0\n");
  EXPECT_THAT(events,
              ElementsAre(alloc(1, Bytes{1}, 1), alloc(2, Bytes{1}, 0), alloc(3, Bytes{1}, 2),
                          alloc(4, Bytes{1}, 1), event_of(Kind::complete_events)));
}

TEST(PlainReader, TakesEveryNumberOf64BitsAsAnID) {
  EXPECT_THAT(events_of("a 18446744073709551615 9223372036854775807\n"),
              ElementsAre(alloc(~std::uint64_t{0}, Bytes{9223372036854775807})));
}

TEST(PlainReader, RefusesALineThatIsWrongAndSaysWhere) {
  EXPECT_THAT(input_error_of("e\na 1 2\na 1 x\n"), AllOf(HasSubstr("a.trace"), HasSubstr("line 3"),
                                                         HasSubstr("byte 12"), HasSubstr("a 1 x")));
  for (const char* line : {"a",
                           "a 1",
                           "a 1 -2",
                           "a 1 2 3 4",
                           "a 1 2 x",
                           "a 1 1.5",
                           "a 1 0x10",
                           "a 1 2GiB",
                           "a x 1",
                           "a 18446744073709551616 1",
                           "a 1 9223372036854775808",
                           "f",
                           "f 1 2",
                           "f1",
                           "r 1",
                           "r 1 x",
                           "y x",
                           "y 1 2",
                           "e 1",
                           "P 1",
                           "B",
                           "B x",
                           "E",
                           "R",
                           "b 1",
                           "alloc 1 2",
                           "A 1 2",
                           "?",
                           "1"}) {
    EXPECT_THAT(input_error_of(std::string("e\n") + line + "\n"), HasSubstr("line 2")) << line;
    EXPECT_THAT(input_error_of(line), HasSubstr("line 1")) << line << " without an end";
  }
}

TEST(PlainReader, RefusesControlCharactersInALine) {
  using namespace std::string_literals;
  EXPECT_THAT(input_error_of(std::string(100, '#') + "\na 1 2\0\n"s), HasSubstr("a 1 2\\x00"));
}

TEST(PlainReader, RefusesAnEndlessLineWithoutKeepingIt) {
  const std::string comment(kLongestLine, '#');
  EXPECT_THAT(events_of(comment + "\ne\n"), ElementsAre(event_of(Kind::empty_cache)));
  EXPECT_THAT(input_error_of(comment + "#\ne\n"), HasSubstr("line 1"));
  EXPECT_THAT(input_error_of("e\n" + std::string(1'000'000, ' ')), HasSubstr("line 2"));
}

TEST(PlainReader, ReadsAFileOfManyWindowsWithoutLosingALine) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i)
    text += "a " + std::to_string(i) + " " + std::to_string(i * 37) + "\n";
  const auto trace = open_trace(folder.write("events", text));
  std::uint64_t count = 0;
  for (Event got; trace->next(got); ++count)
    ASSERT_EQ(got, alloc(count, Bytes{static_cast<std::int64_t>(count) * 37}));
  EXPECT_EQ(count, 100'000U);
  EXPECT_EQ(trace->position(), text.size());
  EXPECT_EQ(trace->size(), text.size());
}

TEST(PlainReader, SaysWhereInALargeFileALineIsWrong) {
  std::string text;
  while (text.size() < 500'000) text += "f " + std::to_string(text.size()) + "\n";
  const std::string byte = "byte " + std::to_string(text.size()) + " ";
  EXPECT_THAT(input_error_of(text + "x\n"), HasSubstr(byte));
}

TEST(PlainReader, RefusesMoreStreamsThanAnyProgramHas) {
  std::string text;
  for (int i = 1; i <= 65'535; ++i) text += "y " + std::to_string(i) + "\n";
  EXPECT_EQ(events_of(text).size(), 65'535U);
  EXPECT_THAT(input_error_of(text + "y 65536\n"), HasSubstr("65536 streams"));
}

TEST(OpenTrace, RefusesAFileThatIsNotATrace) {
  const std::string error =
      input_error_of(std::string("\x7f"
                                 "ELF\x02\x01\x01\0",
                                 8));
  EXPECT_THAT(error, AllOf(HasSubstr("byte 0 of a.trace"), HasSubstr("\\x7fELF")));
}

}  // namespace
}  // namespace headroom::trace
