#include "headroom/cli/core/rehearsal.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/python_step.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/page/page.h"
#include "headroom/trace/export.h"

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

bool keeps_events(const RehearsalOrders& orders) {
  return !orders.trace.empty() || !orders.snapshot.empty() || !orders.html.empty();
}

std::string listed(const std::vector<gpu::SimulatedCard>& cards) {
  Json list = Json::array();
  for (const gpu::SimulatedCard& card : cards) list.push_back(gpu::to_json(card));
  return to_line(list);
}

// Names and room of the cards; null: the run is within its cards.
Json limits_of(const RehearsalOrders& orders) {
  if (orders.limits.empty()) return nullptr;
  Json limits = Json::array();
  for (const gpu::SimulatedCard& card : orders.limits)
    limits.push_back({card.name, room_of(card).count});
  return limits;
}

std::vector<std::string> environment_for(const RehearsalOrders& orders, const fs::path& folder) {
  const Json given{{"gpus", listed(orders.cards)},
                   {"folder", folder.string()},
                   {"mode", orders.mode},
                   {"rules", orders.rules},
                   {"steps", orders.steps},
                   {"assume", orders.assume_true},
                   {"all_ranks", orders.all_ranks},
                   {"trace", keeps_events(orders)},
                   {"limits", limits_of(orders)},
                   {"keep_writes", orders.keep_writes},
                   {"change", orders.change.empty() ? Json() : Json(orders.change)},
                   {"ranks", orders.ranks ? Json(*orders.ranks) : Json()}};
  const std::string before = environment("PYTHONPATH").value_or("");
  const std::string site = (python_package() / "rehearsal/site").string();
  std::vector<std::string> all = orders.environment;
  all.push_back("HEADROOM_REHEARSAL=" + to_line(given));
  all.push_back("PYTHONPATH=" + site + (before.empty() ? "" : ":" + before));
  all.push_back("CUDA_VISIBLE_DEVICES=");  // hides real cards
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

constexpr const char* kOutput = "output";  // of the script, where it is hidden

std::vector<std::string> command_for(const RehearsalOrders& orders, const fs::path& folder) {
  if (!orders.hides_output) return orders.command;
  std::vector<std::string> command{"sh", "-c", "exec \"$@\" >\"$0\" 2>&1", folder / kOutput};
  command.insert(command.end(), orders.command.begin(), orders.command.end());
  return command;
}

std::string end_of(const std::string& text) {
  constexpr std::size_t kMost = 4096;
  return text.size() <= kMost ? text : text.substr(text.find('\n', text.size() - kMost) + 1);
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
                               .began = process.at("lived").at(0).get<double>(),
                               .ended = process.at("lived").at(1).get<double>(),
                               .report = trace::report_from_json(card.at("report"))});
    const auto& more = rehearsal.cards.back().report.assumptions;
    rehearsal.assumptions.insert(rehearsal.assumptions.end(), more.begin(), more.end());
  }
  if (is_first) {
    rehearsal.parameters = process.at("parameters").get<long long>();
    rehearsal.trainable_parameters = process.at("trainable_parameters").get<long long>();
  }
  rehearsal.steps = std::max(rehearsal.steps, process.at("steps").get<int>());
  rehearsal.passes = std::max(rehearsal.passes, process.at("backward_passes").get<int>());
  rehearsal.was_stopped_after_passes |= process.at("was_stopped_after_passes").get<bool>();
  rehearsal.change_was_made |= process.at("change_made").get<bool>();
  rehearsal.ooms_met += process.at("ooms_met").get<int>();
  rehearsal.ran_out_of_memory |= process.at("out_of_memory").get<bool>();
  append(rehearsal.not_written, process.at("not_written"));
  append(rehearsal.stood_in, process.at("stood_in"));
  append(rehearsal.notes, process.at("notes"));
}

std::vector<fs::path> files(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ending) found.push_back(entry.path());
  std::sort(found.begin(), found.end());  // by rank
  return found;
}

// As placeholder.py writes it.
constexpr std::string_view kPlaceholder = "headroom rehearsal: a checkpoint without its data\n";

bool is_placeholder(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(kPlaceholder.size(), '\0');
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == kPlaceholder;
}

// What the processes made, by their log.
struct Created {
  std::set<fs::path> files;
  std::set<fs::path> links;                    // new names of files that were there
  std::set<fs::path, std::greater<>> folders;  // the innermost first
};

Created created_in(const fs::path& folder) {
  Created created;
  std::ifstream log(folder / "created");
  for (std::string line; std::getline(log, line);) {
    std::error_code error;
    const fs::path path = line.substr(std::min<std::size_t>(2, line.size()));
    if (path.native().starts_with(folder.native())) continue;
    const fs::file_status found = fs::symlink_status(path, error);
    created.links.erase(path);
    created.files.erase(path);
    if (line.starts_with("l "))
      created.links.insert(path);
    else if (fs::is_regular_file(found))
      created.files.insert(path);
    if (fs::is_directory(found)) created.folders.insert(path);
  }
  return created;
}

std::string shown(const fs::path& path) {
  const fs::path near = path.lexically_proximate(fs::current_path());
  return near.native().starts_with("..") ? path.string() : near.string();
}

// Removes checkpoints without data, and the new folders that have one.
void clean_up(Rehearsal& rehearsal, const fs::path& folder) {
  Created created = created_in(folder);
  for (const fs::path& link : created.links) {
    std::error_code ignored;
    fs::remove(link, ignored);
  }
  std::set<fs::path> of_checkpoints;
  const auto remove = [&](const fs::path& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
    rehearsal.not_written.push_back(shown(path));
  };
  for (const fs::path& file : created.files) {
    if (!is_placeholder(file)) continue;
    const fs::path parent = file.parent_path();
    if (created.folders.contains(parent))
      of_checkpoints.insert(parent);
    else
      remove(file);
  }
  for (const fs::path& one : of_checkpoints) remove(one);
  for (const fs::path& one : created.folders) {
    std::error_code not_empty;
    fs::remove(one, not_empty);
  }
  for (const fs::path& file : created.files)
    if (std::error_code error; fs::exists(file, error)) rehearsal.written.push_back(shown(file));
}

void export_events(const RehearsalOrders& orders, const fs::path& events) {
  std::error_code error;
  if (!orders.trace.empty())
    fs::copy_file(events, orders.trace, fs::copy_options::overwrite_existing, error);
  if (error) throw WriteError(orders.trace, "cannot be written: " + error.message());
  if (!orders.snapshot.empty()) {
    const auto reader = trace::open_trace(events);
    (void)trace::export_snapshot(orders.snapshot, *reader);
  }
  if (!orders.html.empty()) {
    const auto reader = trace::open_trace(events);
    (void)page::export_page(orders.html, *reader, {}, {.title = join(orders.command, " ")});
  }
}

// Processes that have begun to train, and of these the ones that are done.
std::pair<int, int> begun_and_done(const fs::path& folder) {
  std::pair<int, int> counts;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".begun") ++counts.first;
    if (entry.path().extension() == ".done") ++counts.second;
  }
  return counts;
}

// A script whose children train may wait for what they do after the last step, for ever.
class EndOfWaiting {
 public:
  explicit EndOfWaiting(fs::path folder) : folder_(std::move(folder)) {}

  void look(job::Job& job) {
    const auto [begun, done] = begun_and_done(folder_);
    if (begun == 0 || done < begun) {
      since_.reset();
    } else if (!since_) {
      since_ = Clock::now();
    } else if (!ended_ && Clock::now() - *since_ > kGrace) {
      ended_ = true;
      job.end();
    }
  }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static constexpr Seconds kGrace{30};
  fs::path folder_;
  std::optional<Clock::time_point> since_;  // all that have begun are done
  bool ended_ = false;
};

}  // namespace

Bytes Rehearsal::needs(int index) const {
  Bytes most;
  for (const RehearsedCard& last : cards) {  // of those that were there when it came
    if (last.index != index) continue;
    Bytes sum;
    for (const RehearsedCard& one : cards)
      if (one.index == index && one.began <= last.began && last.began < one.ended)
        sum += one.report.peak.process;
    most = std::max(most, sum);
  }
  return most;
}

RehearsalOrders without_limit(RehearsalOrders orders) {
  orders.limits = orders.cards;
  for (gpu::SimulatedCard& card : orders.cards) {
    card.total = allocator::kUnlimited;
    card.reserved = {};
  }
  return orders;
}

Rehearsal rehearse(const RehearsalOrders& orders) {
  const off_t input = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  const Folder folder;
  job::Job job({.command = command_for(orders, folder.path()),
                .environment = environment_for(orders, folder.path()),
                .output_to_error = orders.output_to_error});
  EndOfWaiting waiting(folder.path());
  Rehearsal rehearsal{.end = job.run(Seconds(1), [&](const job::Job&) { waiting.look(job); }),
                      .cards = {}};
  // A file on standard input is there again for the next run, or for the real one.
  if (input >= 0) (void)::lseek(STDIN_FILENO, input, SEEK_SET);
  rehearsal.was_ended = waiting.ended();
  for (const fs::path& file : files(folder.path(), ".json"))
    add(rehearsal, parse_json(read_file(file).value_or(""), "the report of a rehearsal"));
  clean_up(rehearsal, folder.path());
  if (orders.hides_output)
    rehearsal.hidden_output = end_of(read_file(folder.path() / kOutput).value_or(""));
  if (const auto traces = files(folder.path(), ".trace"); !traces.empty())
    export_events(orders, traces.front());
  return rehearsal;
}

}  // namespace headroom::cli
