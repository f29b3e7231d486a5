// A trace larger than what may be held of it: ten million events, read and replayed by a process
// that may take no more than 64 MiB for it.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "headroom/trace/file_writer.h"
#include "headroom/trace/replay.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/training_events.h"

namespace headroom::trace {
namespace {

using headroom::testing::TemporaryFolder;

// Sanitizers reserve memory by the terabyte for shadows, which no limit on the data can bear: with
// them only the sums are checked, and of fewer events, which take them ten times as long.
#ifdef HEADROOM_SANITIZED
constexpr bool kHasLimit = false;
constexpr std::uint64_t kEvents = 1'000'000;
#else
constexpr bool kHasLimit = true;
constexpr std::uint64_t kEvents = 10'000'000;
#endif
constexpr std::uint64_t kMostMemory = std::uint64_t{64} << 20;

// Sums that show whether an event was skipped, duplicated or misread.
struct Sums {
  std::uint64_t events = 0, bytes = 0, addresses = 0, times = 0, names = 0;

  void add(const Event& event) {
    ++events;
    bytes += static_cast<std::uint64_t>(event.bytes.count);
    addresses += event.address * events;  // of the order too
    times += static_cast<std::uint64_t>(event.time_ns) * events;
    names += (event.module + event.operation) * events;
  }
  bool operator==(const Sums&) const = default;
};

Sums write_training(const std::filesystem::path& path) {
  Names names;
  testing::TrainingEvents source(names, 24);
  TraceWriter writer(path, {}, names);
  Sums sums;
  for (std::uint64_t i = 0; i < kEvents; ++i) {
    const Event event = source.next();
    sums.add(event);
    writer.append(event);
  }
  writer.close();
  return sums;
}

// Data of the process as the limit counts it: private and writable.
std::uint64_t data_now() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "VmData:") break;
  std::uint64_t kib = 0;
  status >> kib;
  return kib << 10;
}

void allow_only(std::uint64_t more) {
  const rlimit limit{data_now() + more, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) ::_exit(2);
}

// The end of a process that does only this work: exit code 0 if the work returns true.
template <typename Work>
int status_with_little_memory(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (kHasLimit) allow_only(kMostMemory);
    bool good = false;
    try {
      good = work();
    } catch (const std::exception&) {  // std::bad_alloc: the limit
    }
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(LargeTrace, IsReadAndReplayedInLittleMemory) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t";
  const Sums written = write_training(path);
  ASSERT_EQ(written.events, kEvents);
  EXPECT_EQ(status_with_little_memory([&] {
              Sums read;
              const auto trace = open_trace(path);
              for (Event event; trace->next(event);) read.add(event);
              return read == written;
            }),
            0);
  EXPECT_EQ(status_with_little_memory([&] {
              const auto trace = open_trace(path);
              const Replay result = replay(*trace);
              return result.noticed.events == kEvents && result.noticed.unknown_frees == 0 &&
                     result.card.refused.empty();
            }),
            0);
}

// Else the limit would show nothing.
TEST(LittleMemory, IsLessThanAQuarterOfTheEventsTake) {
  if (!kHasLimit) GTEST_SKIP() << "there is no limit under sanitizers";
  EXPECT_NE(status_with_little_memory([] {
              static std::vector<Event> all;  // a local one may be optimised away
              all.resize(kEvents / 4);
              return all.back() == Event{};
            }),
            0);
}

}  // namespace
}  // namespace headroom::trace
