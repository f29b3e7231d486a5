// The cost of recording, writing and reading events: events of a training loop
// (tests/trace/training_events.h), made before the clock starts where memory allows.
//
//   bench_trace [events]      10 million by default
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "headroom/trace/file_writer.h"
#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"
#include "tests/trace/training_events.h"

namespace {

namespace fs = std::filesystem;
using namespace headroom;
using namespace headroom::trace;
using bench::peak_mib;
using bench::seconds_since;

constexpr std::uint64_t kPrepared = 1 << 20;

// From here on peak_mib() begins anew: Linux forgets the peak when told so.
void forget_peak_memory() {
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

void say(const char* what, std::uint64_t events, double seconds) {
  std::printf("%-34s %8.1f million events/s  %6.1f ns an event\n", what,
              static_cast<double>(events) / seconds / 1e6,
              seconds * 1e9 / static_cast<double>(events));
}

bool all_there(bool are_there) {
  if (!are_there) std::fprintf(stderr, "bench_trace: events were lost\n");
  return are_there;
}

// This and read(): false if events were lost; their figures then mean nothing.
bool record(const std::vector<Event>& events, std::uint64_t count, const RecorderOptions& options,
            const char* what) {
  Recorder recorder(options);
  const ModuleScope scope(recorder, recorder.name("h.0"));
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) recorder.append(events[i % kPrepared]);
  say(what, count, seconds_since(begin));
  return all_there(recorder.recorded() == count);
}

void write(const fs::path& path, const std::vector<Event>& events, const Names& names,
           std::uint64_t count) {
  const auto begin = Clock::now();
  TraceWriter writer(path, {.program = "bench"}, names);
  for (std::uint64_t i = 0; i < count; ++i) writer.append(events[i % kPrepared]);
  writer.close();
  say("write .hrtrace", count, seconds_since(begin));
  std::printf("%-34s %8.2f bytes an event\n", "",
              static_cast<double>(writer.written().count) / static_cast<double>(count));
}

void write_plain(const fs::path& path, const std::vector<Event>& events, std::uint64_t count) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return std::perror(path.c_str());
  for (std::uint64_t i = 0; i < count; ++i) {
    const Event& event = events[i % kPrepared];
    if (event.kind == Kind::alloc)
      std::fprintf(file, "a %zu %zd\n", std::size_t{event.address}, ssize_t{event.bytes.count});
    else
      std::fprintf(file, "f %zu\n", std::size_t{event.address});
  }
  std::fclose(file);
}

bool read(const fs::path& path, std::uint64_t count, const char* what) {
  forget_peak_memory();
  const double before_mib = peak_mib();
  const auto begin = Clock::now();
  const auto trace = open_trace(path);
  std::uint64_t events = 0, bytes = 0;
  for (Event event; trace->next(event); ++events)
    bytes += static_cast<std::uint64_t>(event.bytes.count);
  say(what, events, seconds_since(begin));
  std::printf("%-34s %8.1f MiB more than the %.1f MiB before (peak)\n", "", peak_mib() - before_mib,
              before_mib);
  return all_there(events == count && bytes > 0);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t count = 10'000'000;
  if (argc > 1) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), count);
  Names names;
  testing::TrainingEvents source(names, 48);
  std::vector<Event> events(kPrepared);
  for (Event& event : events) event = source.next();

  const fs::path folder =
      fs::temp_directory_path() / ("headroom-bench-trace-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::printf("%llu events; in memory one takes %zu bytes\n",
              static_cast<unsigned long long>(count), sizeof(Event));
  write(folder / "t.hrtrace", events, names, count);
  write_plain(folder / "t.txt", events, count);
  bool kept = read(folder / "t.hrtrace", count, "read .hrtrace");
  kept &= read(folder / "t.txt", count, "read plain events");
  kept &= record(events, count, {.limit = 1'000'000}, "record, the last million kept");
  kept &= record(events, count, {}, "record, all kept");
  fs::remove_all(folder);
  return kept ? 0 : 1;
}
