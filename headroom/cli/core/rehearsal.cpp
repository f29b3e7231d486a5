#include "headroom/cli/core/rehearsal.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/cli/core/python_step.h"
#include "headroom/gpu/simulated_json.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// A folder that only this user can read; removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "headroom-rehearsal-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw WriteError(pattern, std::string("cannot be made: ") + std::strerror(errno));
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string listed(const std::vector<gpu::SimulatedCard>& cards) {
  Json list = Json::array();
  for (const gpu::SimulatedCard& card : cards) list.push_back(gpu::to_json(card));
  return to_line(list);
}

std::vector<std::string> environment_for(const RehearsalOrders& orders, const fs::path& folder) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  const Json given{{"gpus", listed(orders.cards)},
                   {"folder", folder.string()},
                   {"mode", orders.mode},
                   {"steps", orders.steps},
                   {"all_ranks", orders.all_ranks},
                   {"trace", !orders.trace.empty()},
                   {"keep_writes", orders.keep_writes},
                   {"visible", visible ? Json(*visible) : Json()}};
  const std::string before = environment("PYTHONPATH").value_or("");
  const std::string site = (python_package() / "rehearsal/site").string();
  std::vector<std::string> all = orders.environment;
  all.push_back("HEADROOM_REHEARSAL=" + to_line(given));
  all.push_back("PYTHONPATH=" + site + (before.empty() ? "" : ":" + before));
  all.push_back("CUDA_VISIBLE_DEVICES=");  // real cards; the script sees its own value
  if (orders.ranks && !orders.all_ranks)
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
             {"RANK", "0"},
             {"LOCAL_RANK", "0"},
             {"WORLD_SIZE", std::to_string(*orders.ranks)},
             {"LOCAL_WORLD_SIZE", std::to_string(*orders.ranks)},
             {"MASTER_ADDR", "127.0.0.1"},
             {"MASTER_PORT", "29500"}})
      all.push_back(name + "=" + value);
  return all;
}

void append(std::vector<std::string>& list, const Json& more) {
  for (const Json& one : more) {
    const auto text = one.get<std::string>();
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }
}

void add(Rehearsal& rehearsal, const Json& process) {
  const bool is_first = rehearsal.cards.empty();
  for (const Json& card : process.at("cards")) {
    if (!card.at("used").get<bool>()) continue;
    rehearsal.cards.push_back({.rank = process.at("rank").get<int>(),
                               .index = card.at("index").get<int>(),
                               .used = true,
                               .report = trace::report_from_json(card.at("report"))});
  }
  if (is_first) {
    rehearsal.parameters = process.at("parameters").get<long long>();
    rehearsal.trainable_parameters = process.at("trainable_parameters").get<long long>();
  }
  rehearsal.steps = std::max(rehearsal.steps, process.at("steps").get<int>());
  rehearsal.ooms_met += process.at("ooms_met").get<int>();
  rehearsal.ran_out_of_memory |= process.at("out_of_memory").get<bool>();
  append(rehearsal.not_written, process.at("not_written"));
  append(rehearsal.stood_in, process.at("stood_in"));
  for (const Json& one : process.at("assumptions")) rehearsal.assumptions.push_back(one);
}

std::vector<fs::path> files(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ending) found.push_back(entry.path());
  std::sort(found.begin(), found.end());  // by rank
  return found;
}

}  // namespace

Rehearsal rehearse(const RehearsalOrders& orders) {
  const Folder folder;
  job::Job job({.command = orders.command,
                .environment = environment_for(orders, folder.path()),
                .output_to_error = orders.output_to_error});
  Rehearsal rehearsal{.end = job.run(Seconds(0), [](const job::Job&) {}), .cards = {}};
  for (const fs::path& file : files(folder.path(), ".json"))
    add(rehearsal, parse_json(read_file(file).value_or(""), "the report of a rehearsal"));
  if (const auto traces = files(folder.path(), ".trace"); !orders.trace.empty() && !traces.empty())
    fs::copy_file(traces.front(), orders.trace, fs::copy_options::overwrite_existing);
  return rehearsal;
}

}  // namespace headroom::cli
