// Limits that the administrator of a machine sets on leases.
#include "headroom/lease/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headroom/base/process.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;

constexpr uid_t kAlice = 4711;  // of no name: "4711"

class SiteFile : public ::testing::Test {
 protected:
  [[nodiscard]] Site site(const std::string& text) const {
    return Site::read(folder_.path() / "none", folder_.write("site.json", text));
  }
  [[nodiscard]] static gpu::Uuid card(std::uint8_t number) {
    gpu::Uuid uuid;
    uuid.bytes[0] = number;
    return uuid;
  }
  [[nodiscard]] static Contents held(Bytes each, uid_t uid = kAlice) {
    Contents now;
    now.leases.resize(1);
    now.leases[0].uid = uid;
    now.leases[0].shares = {{card(1), each}};
    return now;
  }
  testing::TemporaryFolder folder_;
};

const char* const kLimits =
    R"({"limits": {"everybody": {"reserved": "40GiB", "cards": 1}, "users": {"4712": {"cards": 2}}}})";

TEST_F(SiteFile, LimitsTheTotalReservationOfAUser) {
  const Site limited = site(kLimits);
  EXPECT_EQ(limited.trouble(), "");
  EXPECT_FALSE(limited.over_limit(held(30_GiB), kAlice, 10_GiB, {card(1)}));
  const auto why = limited.over_limit(held(30_GiB), kAlice, 11_GiB, {card(1)});
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, HasSubstr("limit of 4711 in"));
  EXPECT_THAT(*why, HasSubstr("40.00 GiB; 30.00 GiB are reserved by 1 lease"));
  EXPECT_EQ(limited.left(held(30_GiB), kAlice), 10_GiB);
  EXPECT_FALSE(limited.over_limit(held(30_GiB, kAlice + 7), kAlice, 40_GiB, {card(1)}));
}

TEST_F(SiteFile, LimitsTheCardsOfEachUser) {
  const Site limited = site(kLimits);
  EXPECT_TRUE(limited.over_limit(held(1_GiB), kAlice, 1_GiB, {card(2)}));
  EXPECT_FALSE(limited.over_limit(held(1_GiB, 4712), 4712, 100_GiB, {card(2)}));
  EXPECT_TRUE(limited.over_limit(held(1_GiB, 4712), 4712, 1_GiB, {card(2), card(3)}));
  EXPECT_FALSE(limited.over_limit(held(1_GiB, 0), 0, 100_GiB, {card(2)})) << "root";
}

TEST_F(SiteFile, SetsNoLimitsAndReportsWhyIfUnreadable) {
  for (const char* bad :
       {"{", R"({"limit": {}})", R"({"limits": {"everybody": {"reserved": "40"}}})",
        R"({"limits": {"everybody": {"reserved": 40}}})",
        R"({"limits": {"users": {"a": {"card": 1}}}})",
        R"({"limits": {"everybody": {"cards": "two"}}})", R"({"limits": []})",
        R"({"schema": 2, "limits": {}})"}) {
    const Site none = site(bad);
    EXPECT_NE(none.trouble(), "") << bad;
    EXPECT_FALSE(none.limit_of(kAlice).reserved || none.limit_of(kAlice).cards) << bad;
  }
}

// A user could have named a file of their own.
TEST_F(SiteFile, IsNamedByTheVariableOnlyWithoutAUsualFile) {
  const auto usual = folder_.write("usual.json", kLimits);
  const auto other = folder_.write("other.json", R"({"limits": {}})");
  ::chmod(usual.c_str(), 0644);
  const Site site = Site::read(usual, other);
  EXPECT_EQ(site.file(), usual);
  if (::geteuid() == 0)
    EXPECT_EQ(site.limit_of(kAlice).reserved, 40_GiB);
  else
    EXPECT_THAT(site.trouble(), HasSubstr("not to root"));
}

TEST_F(SiteFile, MustBelongToRootAtTheUsualPlace) {
  const auto usual = folder_.write("usual.json", kLimits);
  ::chmod(usual.c_str(), 0666);
  const Site site = Site::read(usual, {});
  EXPECT_NE(site.trouble(), "");
  EXPECT_FALSE(site.limit_of(kAlice).reserved);
}

}  // namespace
}  // namespace headroom::lease
