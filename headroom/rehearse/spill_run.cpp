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

std::vector<std::string> spill_sentences(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> sentences;
  for (const fs::path& file : files) {
    const Json process = parse_json(read_file(file).value_or(""), file.string());
    const std::string rank = process.at("rank").is_null()
                                 ? ""
                                 : "rank " + std::to_string(process.at("rank").get<int>()) + ": ";
    sentences.push_back(rank + process.at("text").get<std::string>());
  }
  return sentences;
}

}  // namespace headroom::rehearse
