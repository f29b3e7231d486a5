// Headroom's side of tests/train/tensorboard_peer.py: writes the figures of a run that stopped
// after step 10, after its checkpoint of step 6, and went on from there. Prints what TensorBoard
// has to show, as JSON.
//
//   tensorboard_writer FOLDER
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/json.h"
#include "headroom/train/tensorboard.h"

namespace headroom::train {
namespace {

const std::string kText = "the *second* batch\n\n| a | b |\n|---|---|\n| 1 | ü |\n";

void write_steps(EventFile& events, int from, int to, double shift) {
  for (int step = from; step <= to; ++step) {
    events.scalar("loss", shift + 10.0 / step, step);
    events.scalar("memory/peak_bytes", 6.5e9 + step, step);
    if (step == 2 || step == 8) events.text("größe/plan", kText, step);
    events.flush();
  }
}

void write_all_of(const std::filesystem::path& folder) {
  {
    EventFile first(folder);
    first.scalar("odd", 0, 0);
    first.scalar("odd", -1.5, 1);
    first.scalar("odd", std::numeric_limits<double>::infinity(), 2);
    first.scalar("odd", std::nan(""), 3);
    write_steps(first, 1, 10, 0);
  }
  EventFile second(folder, 7);
  write_steps(second, 7, 12, 100);
  second.scalar("last", 1, std::int64_t{1} << 40);
}

Json shown() {
  Json all;
  for (int step = 1; step <= 12; ++step) {
    all["loss"].push_back({step, (step < 7 ? 0 : 100) + 10.0 / step});
    all["memory/peak_bytes"].push_back({step, 6.5e9 + step});
  }
  all["odd"] = {{0, 0.0}, {1, -1.5}, {2, "inf"}, {3, "nan"}};
  all["größe/plan"] = {{2, kText}, {8, kText}};
  all["last"] = Json::array({{std::int64_t{1} << 40, 1.0}});
  return all;
}

}  // namespace
}  // namespace headroom::train

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    headroom::train::write_all_of(arguments[1]);
    std::printf("%s\n", headroom::to_line(headroom::train::shown()).c_str());
    return 0;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "%s\n", error.what()));
    return 1;
  }
}
