// The own format, written and read back whatever happened to the file: file_reader.h. What the
// writer refuses is in file_writer_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "headroom/base/file.h"
#include "headroom/trace/detail/file_form.h"
#include "headroom/trace/detail/zstd_frame.h"
#include "headroom/trace/file_reader.h"
#include "headroom/trace/file_writer.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/events_of.h"
#include "tests/trace/training_events.h"

namespace headroom::trace {
namespace {

using headroom::testing::TemporaryFolder;
using testing::all_events;
using ::testing::AllOf;
using testing::events_of;
using ::testing::HasSubstr;
using testing::input_error_of;
using testing::open_bytes;

struct Made {
  std::string bytes;
  std::vector<Event> events;
  std::vector<std::size_t> part_ends;  // where the head ends, then each part
};

// A trace of `parts` parts of `events_per_part` events.
Made make(std::size_t parts, std::uint32_t events_per_part, const About& about = {}) {
  const TemporaryFolder folder;
  Names names;
  testing::TrainingEvents source(names, 2);
  Made made;
  TraceWriter writer(folder.path() / "t", about, names, {.events_per_part = events_per_part});
  made.part_ends.push_back(static_cast<std::size_t>(writer.written().count));
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::uint32_t i = 0; i < events_per_part; ++i)
      writer.append(made.events.emplace_back(source.next()));
    made.part_ends.push_back(static_cast<std::size_t>(writer.written().count));
  }
  writer.close();
  made.bytes = read_input(folder.path() / "t");
  return made;
}

std::vector<Event> first(const std::vector<Event>& events, std::size_t count) {
  return {events.begin(), events.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::string only_head() {
  const Made made = make(0, 1);
  return made.bytes.substr(0, made.part_ends[0]);
}

// A file with a right prefix and head and then this part, whatever it holds.
std::string file_with_part(std::string_view raw, std::uint32_t events) {
  detail::Compressor compressor(3);
  std::string frame;
  compressor.append_frame(frame, raw);
  return only_head() +
         detail::to_bytes(
             detail::PartHeader{.tag = "PART",
                                .stored_bytes = static_cast<std::uint32_t>(frame.size()),
                                .raw_bytes = static_cast<std::uint32_t>(raw.size()),
                                .events = events}) +
         frame;
}

TEST(TraceFile, GivesBackEveryFieldOfEveryEvent) {
  const TemporaryFolder folder;
  Names names;
  std::vector<Event> events;
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    Event event;
    event.time_ns = static_cast<std::int64_t>(random());
    event.address = random();
    event.bytes = Bytes{static_cast<std::int64_t>(random() >> 1U)};
    event.stream = static_cast<std::uint32_t>(random() % 65'536);
    event.step = static_cast<std::uint32_t>(random());
    event.module = names.number("m" + std::to_string(random() % 100));
    event.operation = names.number("o" + std::to_string(i));
    event.device = static_cast<std::uint16_t>(random());
    event.kind = static_cast<Kind>(random() % kKinds);
    if (event.kind == Kind::complete_events && i % 2 == 0) event.stream = kAllStreams;
    event.category = static_cast<Category>(random() % kCategories);
    event.phase = static_cast<Phase>(random() % kPhases);
    events.push_back(event);
  }
  TraceWriter writer(folder.path() / "t", {}, names, {.events_per_part = 300});
  for (const Event& event : events) writer.append(event);
  writer.close();
  const auto trace = open_trace(folder.path() / "t");
  EXPECT_EQ(all_events(*trace), events);
  ASSERT_EQ(trace->names().size(), names.size());
  for (Name name = 0; name < names.size(); ++name)
    EXPECT_EQ(trace->names().text(name), names.text(name));
  EXPECT_EQ(trace->cut_off(), 0U);
  EXPECT_EQ(trace->position(), trace->size());
}

TEST(TraceFile, KeepsTheWritersFactsAboutTheTrace) {
  const auto said = make(1, 3,
                         {.program = "train \"x\"",
                          .settings = "max_split_size_mb:64",
                          .capacity = Bytes{24LL << 30},
                          .torch = "2.15",
                          .times_are_known = true});
  const auto trace = open_bytes(said.bytes);
  const About& about = trace->about();
  EXPECT_EQ(about.format, Format::headroom);
  EXPECT_EQ(about.program, "train \"x\"");
  EXPECT_EQ(about.settings, "max_split_size_mb:64");
  EXPECT_EQ(about.capacity, Bytes{24LL << 30});
  EXPECT_EQ(about.torch, "2.15");
  EXPECT_TRUE(about.times_are_known);
  EXPECT_TRUE(about.is_within_capacity);
  const auto without_limit = make(1, 3, {.capacity = Bytes{1 << 20}, .is_within_capacity = false});
  EXPECT_FALSE(open_bytes(without_limit.bytes)->about().is_within_capacity);
  EXPECT_FALSE(open_bytes(make(1, 3).bytes)->about().capacity) << "not said is not 0";
}

TEST(TraceFile, IsReadWhileItIsBeingWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t";
  Names names;
  TraceWriter writer(path, {}, names);
  EXPECT_TRUE(all_events(*open_trace(path)).empty()) << "the head is there from the start";
  Event event;
  for (int i = 0; i < 5; ++i) {
    event.address = static_cast<std::uint64_t>(i);
    event.module = names.number("m" + std::to_string(i));
    writer.append(event);
    writer.flush();
    const auto trace = open_trace(path);
    EXPECT_EQ(all_events(*trace).size(), static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(trace->names().text(event.module), "m" + std::to_string(i));
  }
}

TEST(TraceFile, KeepsEveryWholePartWhereverItIsCut) {
  const Made made = make(5, 40);
  std::size_t whole = 0;  // parts
  for (std::size_t cut = made.part_ends[0]; cut <= made.bytes.size(); ++cut) {
    while (whole + 1 < made.part_ends.size() && made.part_ends[whole + 1] <= cut) ++whole;
    const auto trace = open_bytes(std::string_view(made.bytes).substr(0, cut));
    ASSERT_EQ(all_events(*trace), first(made.events, whole * 40)) << cut;
    ASSERT_EQ(trace->cut_off(), cut - made.part_ends[whole]) << cut;
  }
  EXPECT_EQ(whole, 5U);
}

TEST(TraceFile, KeepsEveryWholePartOfALargeOneToo) {
  const Made made = make(20, 20'000);
  std::mt19937_64 random(3);
  for (int i = 0; i < 25; ++i) {
    const std::size_t cut = made.part_ends[0] + random() % (made.bytes.size() - made.part_ends[0]);
    const auto after = std::upper_bound(made.part_ends.begin(), made.part_ends.end(), cut);
    const auto whole = static_cast<std::size_t>(after - made.part_ends.begin()) - 1;
    const auto trace = open_bytes(std::string_view(made.bytes).substr(0, cut));
    ASSERT_EQ(all_events(*trace), first(made.events, whole * 20'000)) << cut;
  }
}

TEST(TraceFile, IsRefusedIfItIsCutWithinItsHead) {
  const Made made = make(1, 3);
  for (std::size_t cut = 1; cut < made.part_ends[0]; ++cut)
    ASSERT_THAT(input_error_of(std::string_view(made.bytes).substr(0, cut)), HasSubstr("a.trace"))
        << cut;
}

// Some bits in a zstd frame mean nothing; changing those changes no event.
TEST(TraceFile, NeverGivesOtherEventsWhenAByteWasChanged) {
  const Made made = make(3, 30);
  int unnoticed = 0;
  for (std::size_t at = 0; at < made.bytes.size(); ++at) {
    for (const char change : {'\x01', '\x80', '\xff'}) {
      std::string damaged = made.bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      if (!input_error_of(damaged).empty()) continue;
      ASSERT_EQ(events_of(damaged), made.events) << at;
      ++unnoticed;
    }
  }
  EXPECT_LT(unnoticed, static_cast<int>(made.bytes.size()) * 3 / 100) << "of three times as many";
}

TEST(TraceFile, GivesTheEventsBeforeTheDamageAndItsPlace) {
  Made made = make(3, 30);
  made.bytes[made.part_ends[2] + 30] ^= 1;
  const auto trace = open_bytes(made.bytes);
  std::vector<Event> events;
  try {
    for (Event event; trace->next(event);) events.push_back(event);
    FAIL() << "the damage was not noticed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("byte " + std::to_string(made.part_ends[2]) + " of a.trace"));
  }
  EXPECT_EQ(events, first(made.events, 60));
}

// A file system may give a file its length before its data: after a power cut the rest is zeros.
TEST(TraceFile, TakesZerosAtItsEndAsNotWritten) {
  const Made made = make(3, 30);
  for (const std::size_t from :
       {made.part_ends[3], made.part_ends[2], made.part_ends[2] + 8, made.part_ends[2] + 60}) {
    std::string cut = made.bytes.substr(0, from) + std::string(9'000 - from, '\0');
    const auto trace = open_bytes(cut);
    const std::size_t whole = from == made.part_ends[3] ? 3 : 2;
    EXPECT_EQ(all_events(*trace), first(made.events, whole * 30));
    EXPECT_EQ(trace->cut_off(), cut.size() - made.part_ends[whole]);
    EXPECT_THAT(input_error_of(cut + "x"), HasSubstr("byte ")) << "but not in the middle";
  }
}

TEST(TraceFile, OfALaterFormatSaysWhoWroteIt) {
  std::string later = make(1, 3).bytes;
  later.replace(0, 16, detail::to_bytes(detail::Prefix{.version = 3, .needs = 2}));
  EXPECT_THAT(input_error_of(later),
              AllOf(HasSubstr("version 3"), HasSubstr("written by headroom ")));
  later.replace(0, 16, detail::to_bytes(detail::Prefix{.version = 3, .needs = 1}));
  EXPECT_EQ(input_error_of(later), "") << "later, but made so that this reader can read it";
}

TEST(TraceFile, LeavesOutColumnsThatItDoesNotKnow) {
  using namespace std::string_literals;
  // No names; kind: free_requested twice; column 40, 2 bytes; address 5, 4.
  const auto events = events_of(file_with_part("\1\0\1\2\1\1\x28\2xy\3\2\x0a\1"s, 2));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].address, 5U);
  EXPECT_EQ(events[1].address, 4U);
}

TEST(TraceFile, RefusesPartsThatNoWriterMakes) {
  using namespace std::string_literals;
  const struct {
    std::string raw;
    std::uint32_t events;
    const char* what;
  } cases[] = {
      {"", 0, "no names"},
      {"\2\0"s, 0, "names that begin too late"},
      {"\1\1"s, 0, "a name that is not there"},
      {"\1\1\0"s, 0, "the empty name again"},
      {"\1\2\1a\1a"s, 0, "a name twice"},
      {"\1\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"s, 0, "a name that is too long"},
      {"\1\0"s, 1, "no column of kinds"},
      {"\1\0\1\1\0"s, 2, "too few kinds"},
      {"\1\0\1\3\0\0\0"s, 2, "too many kinds"},
      {"\1\0\1\1\x11"s, 1, "an unknown kind"},
      {"\1\0\1\1\0\1\1\0"s, 1, "kinds twice"},
      {"\1\0\1\5\0"s, 1, "a column that is cut"},
      {"\1\0\1\1\0\7\1\1"s, 1, "a module without name"},
      {"\1\0\1\1\0\5\3\x80\x80\4"s, 1, "stream 65536"},
      {"\1\0\1\1\0\5\5\xff\xff\xff\xff\xf"s, 1, "an allocation on all streams"},
      {"\1\0\1\1\0\4\12\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"s, 1, "2^64 - 1 bytes"},
      {"\1\0\1\1\0\3\12\xff\xff\xff\xff\xff\xff\xff\xff\xff\2"s, 1, "more than 64 bits"},
      {"\1\0\1\1\0\6\1\1"s, 1, "step -1"},
      {"\1\0\1\1\0\12\1\11"s, 1, "an unknown category"},
      {"\1\0\1\1\0\13\1\7"s, 1, "an unknown phase"},
  };
  EXPECT_EQ(events_of(file_with_part("\1\0\1\1\0\5\3\xff\xff\3"s, 1))[0].stream, 65'535U);
  for (const auto& part : cases)
    EXPECT_THAT(input_error_of(file_with_part(part.raw, part.events)), HasSubstr("byte "))
        << part.what;
}

TEST(TraceFile, RefusesALengthBeyondTheLimitsWithoutTakingTheMemory) {
  for (const auto& [stored, raw, events] :
       {std::tuple{0xffffffffU, 10U, 1U}, {10U, 0xffffffffU, 1U}, {10U, 10U, 65'537U}})
    EXPECT_THAT(input_error_of(only_head() +
                               detail::to_bytes(detail::PartHeader{"PART", stored, raw, events}) +
                               std::string(100, 'x')),
                HasSubstr("limits"));
}

TEST(TraceFile, RefusesAFrameThatIsLargerThanItsHeaderSays) {
  detail::Compressor compressor(3);
  std::string frame;
  compressor.append_frame(frame, std::string(100'000'000, 'a'));
  const auto size = static_cast<std::uint32_t>(frame.size());
  const std::string bytes =
      only_head() + detail::to_bytes(detail::PartHeader{"PART", size, 100, 1}) + frame;
  EXPECT_THAT(input_error_of(bytes), HasSubstr("byte "));
}

TEST(TraceFile, TakesAboutThreeBytesForAnEventOfATrainingLoop) {
  const Made made = make(4, 65'536);
  EXPECT_LT(static_cast<double>(made.bytes.size()), 4.0 * static_cast<double>(made.events.size()));
}

}  // namespace
}  // namespace headroom::trace
