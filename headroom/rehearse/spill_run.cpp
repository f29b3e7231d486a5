#include "headroom/rehearse/spill_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/process.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/rehearse/python.h"

namespace headroom::rehearse {

namespace fs = std::filesystem;

std::vector<std::string> spill_environment(const SpillOrders& orders) {
  Json cards = Json::array();
  for (const gpu::SimulatedCard& card : orders.cards) cards.push_back(gpu::to_json(card));
  const Json given{{"folder", orders.folder.string()},
                   {"host_memory", orders.host_memory ? Json(orders.host_memory->count) : Json()},
                   {"gpus", orders.cards.empty() ? Json() : Json(to_line(cards))}};
  const std::string before = environment("PYTHONPATH").value_or("");
  const std::string site = (python_package() / "rehearsal/site").string();
  return {"HEADROOM_SPILL=" + to_line(given),
          "PYTHONPATH=" + site + (before.empty() ? "" : ":" + before)};
}

std::vector<SpilledProcess> spilled_processes(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<SpilledProcess> processes;
  for (const fs::path& file : files) {
    const Json one = parse_json(read_file(file).value_or(""), file.string());
    const auto bytes = [&](const char* key) { return Bytes{one.at(key).get<std::int64_t>()}; };
    processes.push_back(
        {.rank = one.at("rank").is_null() ? std::optional<int>() : one.at("rank").get<int>(),
         .refused = one.at("refused").get<std::int64_t>(),
         .rescued = one.at("rescued").get<std::int64_t>(),
         .moved = bytes("moved_bytes"),
         .peak_waiting = bytes("peak_waiting_bytes"),
         .needed = bytes("needed_bytes"),
         .peak_reserved = bytes("peak_reserved_bytes"),
         .seconds = one.at("seconds").get<double>(),
         .sentence = one.at("text").get<std::string>()});
  }
  return processes;
}

}  // namespace headroom::rehearse
