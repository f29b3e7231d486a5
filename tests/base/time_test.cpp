#include "headroom/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;

TEST(ParseDuration, ReadsUnitsAndTheirSums) {
  EXPECT_DOUBLE_EQ(parse_duration("500ms").count(), 0.5);
  EXPECT_DOUBLE_EQ(parse_duration("30s").count(), 30);
  EXPECT_DOUBLE_EQ(parse_duration("10m").count(), 600);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m").count(), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("1h 30m").count(), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("2d").count(), 172800);
  EXPECT_DOUBLE_EQ(parse_duration("1.5h").count(), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("45").count(), 45);
  EXPECT_DOUBLE_EQ(parse_duration("0").count(), 0);
}

class RefusesDuration : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusesDuration, AndNamesWhatItExpected) {
  try {
    const Seconds time = parse_duration(GetParam());
    FAIL() << "'" << GetParam() << "' was read as " << time.count() << " s";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a time such as 500ms, 30s, 10m or 1h30m"));
    EXPECT_THAT(error.what(), HasSubstr("received '" + std::string(GetParam()) + "'"));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RefusesDuration,
                         ::testing::Values("", " ", "-5s", "-5", "5 apples", "5x", "s", "1h30",
                                           "1.2.3s", "nan", "inf", "infs", "1e300", "100000000d",
                                           "5m-3s"));

TEST(DurationText, GrowsCoarserWithTheTime) {
  EXPECT_EQ(duration_text(Seconds(0)), "0.0 s");
  EXPECT_EQ(duration_text(Seconds(0.021)), "21 ms") << "it was 0.0 s";
  EXPECT_EQ(duration_text(Seconds(0.44)), "0.4 s");
  EXPECT_EQ(duration_text(Seconds(9.96)), "10 s");
  EXPECT_EQ(duration_text(Seconds(12.4)), "12 s");
  EXPECT_EQ(duration_text(Seconds(200)), "3 m 20 s");
  EXPECT_EQ(duration_text(Seconds(7500)), "2 h 5 m");
  // They read "60 m 0 s" and "94 m 24 s".
  EXPECT_EQ(duration_text(Seconds(3600)), "1 h");
  EXPECT_EQ(duration_text(Seconds(94 * 60 + 24)), "1 h 34 m");
  EXPECT_EQ(duration_text(Seconds(4 * 86400 + 3 * 3600 + 59)), "4 d 3 h");
}

class TimeZone {
 public:
  explicit TimeZone(const char* zone) {
    if (const char* now = std::getenv("TZ")) before_ = now, was_set_ = true;
    set(zone);
  }
  ~TimeZone() { set(was_set_ ? before_.c_str() : nullptr); }

 private:
  static void set(const char* zone) {
    zone != nullptr ? ::setenv("TZ", zone, 1) : ::unsetenv("TZ");
    ::tzset();
  }
  std::string before_;
  bool was_set_ = false;
};

// 2026-11-21 13:03:07 UTC is second 1795266187 (date -u -d @1795266187).
constexpr WallTime kMoment{std::chrono::milliseconds(1795266187'250)};

TEST(Timestamps, TellTheSameMomentInUtcAndLocally) {
  const TimeZone zone("CET-1");
  EXPECT_EQ(utc_timestamp(kMoment), "2026-11-21T13:03:07.250Z");
  EXPECT_EQ(local_timestamp(kMoment), "2026-11-21 14:03:07.250");
}

TEST(Timestamps, SortAsTheMomentsDo) {
  EXPECT_LT(utc_timestamp(kMoment), utc_timestamp(kMoment + std::chrono::milliseconds(1)));
  EXPECT_LT(utc_timestamp(kMoment), utc_timestamp(kMoment + std::chrono::hours(24 * 60)));
}

}  // namespace
}  // namespace headroom
