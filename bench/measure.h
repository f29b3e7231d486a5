// Tools of the benchmarks: numbers of the command line, the clock, a median, this process's memory.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "headroom/base/time.h"

namespace headroom::bench {

// The numbers on the command line, from 1; `usual` where there is none.
class Arguments {
 public:
  Arguments(int count, char** words) : count_(count), words_(words) {}
  long operator()(int i, long usual) const { return count_ > i ? std::atol(words_[i]) : usual; }

 private:
  int count_;
  char** words_;
};

inline double seconds_since(Clock::time_point begin) {
  return Seconds(Clock::now() - begin).count();
}

// The median of at least one value; of an even number, the upper of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The most memory this process ever had; 0: the system does not say.
inline double peak_mib() {
  double kib = 0;
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::strtod(line + 6, nullptr);
    std::fclose(file);
  }
  return kib / 1024;
}

}  // namespace headroom::bench
