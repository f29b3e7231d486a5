// A command below a Job, and nothing else: for tests that need a process of their own, in a
// terminal or with other files as its standard streams.
//
//   job_program [--to-error] [--report FILE] [--tick SECONDS] [--throw] [--crash] -- COMMAND...
//
// FILE gets the JobEnd as JSON. Its exit code is the command's.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headroom/base/json.h"
#include "headroom/job/job.h"

namespace {

using namespace headroom;

struct Options {
  job::Launch launch;
  std::string report;
  double tick = 0;
  bool throws = false, crashes = false;
};

Options read(int count, char** words) {
  Options options;
  int i = 1;
  for (; i < count && std::string(words[i]) != "--"; ++i) {
    const std::string word = words[i];
    if (word == "--to-error") options.launch.output_to_error = true;
    if (word == "--report") options.report = words[++i];
    if (word == "--tick") options.tick = std::atof(words[++i]);
    if (word == "--throw") options.throws = true;
    if (word == "--crash") options.crashes = true;
  }
  for (++i; i < count; ++i) options.launch.command.emplace_back(words[i]);
  return options;
}

long peak_kib() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

void write(const job::JobEnd& end, int ticks, const std::string& path) {
  Json report{{"exit_code", end.exit_code},
              {"started", end.started},
              {"not_started", end.not_started},
              {"ended_rest", end.ended_rest},
              {"stuck", end.stuck},
              {"unwritten_bytes", end.unwritten_bytes},
              {"signal", end.signal.value_or(0)},
              {"received", end.received.value_or(0)},
              {"unwritten_errno", end.unwritten_errno.value_or(0)},
              {"last_output_bytes", end.last_output.size()},
              {"ticks", ticks},
              {"peak_kib", peak_kib()}};
  std::ofstream(path + ".new") << report.dump();
  std::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace

int main(int count, char** words) {
  const Options options = read(count, words);
  int ticks = 0;
  try {
    job::Job job(options.launch);
    const job::JobEnd end = job.run(Seconds(options.tick), [&](const job::Job&) {
      ++ticks;
      if (options.throws) throw std::runtime_error("thrown while the job runs");
      if (options.crashes) std::abort();
    });
    if (!options.report.empty()) write(end, ticks, options.report);
    return end.exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "job_program: %s\n", error.what());
    return 70;
  }
}
