#include "headroom/train/tensorboard.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Bytes with zeros among them.
template <std::size_t n>
std::string bytes_of(const char (&text)[n]) {
  return {text, n - 1};
}

template <typename Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.substr(at, sizeof number).data(), sizeof number);
  return number;
}

std::uint32_t without_mask(std::uint32_t checksum) {
  return std::rotl(checksum - 0xa282ead8U, 15);
}

// The events of a file, each without its first field, the time.
std::vector<std::string> events_in(const fs::path& path) {
  const std::string file = read_input(path);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(file, at));
    EXPECT_EQ(without_mask(number_at<std::uint32_t>(file, at + 8)), crc32c(file.substr(at, 8)));
    const std::string event = file.substr(at + 12, length);
    EXPECT_EQ(without_mask(number_at<std::uint32_t>(file, at + 12 + length)), crc32c(event));
    EXPECT_EQ(event[0], '\x09');
    EXPECT_GT(number_at<double>(event, 1), 1.7e9) << "seconds since 1970";
    events.push_back(event.substr(9));
    at += length + 16;
  }
  return events;
}

// Source: RFC 3720, B.4, and the check value of CRC-32C in the catalogue of reveng.sourceforge.io.
TEST(Crc32c, GivesTheStandardsExamples) {
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(up), 0x46dd794eU);
  EXPECT_EQ(crc32c(down), 0x113fdb5cU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

// Source of the bytes in this file: SerializeToString() of TensorBoard 2.21's own messages and its
// masked_crc32c(). (Those leave out a step of 0.)
TEST(EventFile, BeginsWithItsVersionAndAStart) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), 300);
  EXPECT_THAT(events_in(file.path()), ElementsAre(bytes_of("\x10\x00\x1a\x0d") + "brain.Event:2",
                                                  bytes_of("\x10\xac\x02\x3a\x02\x08\x01")));
  EXPECT_TRUE(read_input(file.path())
                  .starts_with(bytes_of("\x1a\x00\x00\x00\x00\x00\x00\x00\x12\x9b\xd8\x2d")));
}

TEST(EventFile, WritesScalars) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  file.scalar("loss", 2.5, 300);
  file.scalar("t", 0, -1);
  file.flush();
  const std::vector<std::string> events = events_in(file.path());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[2], bytes_of("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x20\x40"));
  EXPECT_EQ(events[3], bytes_of("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x2a\x0a\x0a\x08\x0a"
                                "\x01t\x15\x00\x00\x00\x00"));
}

TEST(EventFile, WritesTexts) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  file.text("plan", std::string(200, 'x'), 1);
  file.flush();
  const std::vector<std::string> events = events_in(file.path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[2],
            bytes_of("\x10\x01\x2a\xe5\x01\x0a\xe2\x01\x0a\x04plan\x42\xcd\x01\x08\x07\x42\xc8"
                     "\x01") +
                std::string(200, 'x') + bytes_of("\x4a\x0a\x0a\x06\x0a\x04text\x20\x02"));
}

TEST(EventFile, KeepsInfinityAndNotANumber) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  for (const double odd : {std::nan(""), HUGE_VAL, -HUGE_VAL}) file.scalar("t", odd, 1);
  file.flush();
  std::vector<float> values;
  for (const std::string& event : events_in(file.path()))
    values.push_back(number_at<float>(event, event.size() - 4));
  ASSERT_THAT(values, SizeIs(5));
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], HUGE_VALF);
  EXPECT_EQ(values[4], -HUGE_VALF);
}

// TensorBoard looks for "tfevents" and takes the files in the order of their names.
TEST(EventFile, HasANameThatTensorBoardFindsAndNoTwoShare) {
  const TemporaryFolder folder;
  const EventFile first(folder.path() / "new"), second(folder.path() / "new", 10);
  EXPECT_THAT(first.path().filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\.[0-9]+\\.0"));
  EXPECT_EQ(first.path().parent_path(), folder.path() / "new");
  EXPECT_LT(first.path(), second.path());
}

TEST(EventFile, WritesAtFlushesAndAtItsEnd) {
  const TemporaryFolder folder;
  fs::path path;
  {
    EventFile file(folder.path());
    path = file.path();
    file.scalar("loss", 1, 1);
    file.scalar("rate", 1, 1);
    EXPECT_THAT(events_in(path), SizeIs(2));
    file.flush();
    EXPECT_THAT(events_in(path), SizeIs(4));
    file.scalar("loss", 1, 2);
  }
  EXPECT_THAT(events_in(path), SizeIs(5));
}

TEST(EventFile, LeavesWholeRecordsWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  file.scalar("loss", 1, 1);
  file.flush();
  {
    const FileSizeLimit limit(fs::file_size(file.path()) + 20);
    file.scalar("loss", 1, 2);
    file.scalar("loss", 1, 3);
    EXPECT_THROW(file.flush(), WriteError);
    EXPECT_THAT(events_in(file.path()), SizeIs(3));
    file.flush();
  }
  file.scalar("loss", 1, 4);
  file.flush();
  EXPECT_THAT(events_in(file.path()), SizeIs(4));
}

TEST(EventFile, SaysWhyItCannotBeMade) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  try {
    const EventFile events(file / "below");
    FAIL();
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string() + "/below: Not a directory"));
  }
  const FileSizeLimit limit(0);
  EXPECT_THROW(const EventFile events(folder.path()), WriteError);
}

}  // namespace
}  // namespace headroom::train
