#include "headroom/rehearse/rehearsal.h"

#include <unistd.h>

#include <algorithm>
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
#include "headroom/gpu/simulated_json.h"
#include "headroom/rehearse/python.h"

namespace headroom::rehearse {
namespace {

namespace fs = std::filesystem;

std::string listed(const std::vector<gpu::SimulatedCard>& cards) {
  Json list = Json::array();
  for (const gpu::SimulatedCard& card : cards) list.push_back(gpu::to_json(card));
  return to_line(list);
}

// Names and room of the cards; null if the run is within its cards.
Json limits_of(const Orders& orders) {
  if (orders.limits.empty()) return nullptr;
  Json limits = Json::array();
  for (const gpu::SimulatedCard& card : orders.limits)
    limits.push_back({card.name, room_of(card).count});
  return limits;
}

std::vector<std::string> environment_for(const Orders& orders, const fs::path& folder) {
  const Json given{{"gpus", listed(orders.cards)},
                   {"folder", folder.string()},
                   {"mode", orders.mode},
                   {"rules", orders.rules},
                   {"steps", orders.steps},
                   {"assume", orders.assume_true},
                   {"all_ranks", orders.all_ranks},
                   {"spill", orders.spill},
                   {"trace", orders.keeps_events},
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

std::string end_of(const std::string& text) {
  constexpr std::size_t kLength = 4096;
  return text.size() <= kLength ? text : text.substr(text.find('\n', text.size() - kLength) + 1);
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
  if (const Json& spilled = process.at("spill"); !spilled.is_null()) {
    const auto most = [&](Bytes& bytes, const char* key) {
      bytes = std::max(bytes, Bytes{spilled.at(key).get<std::int64_t>()});
    };
    most(rehearsal.spilled.waiting, "peak_waiting_bytes");
    most(rehearsal.spilled.moved_in_step, "moved_in_step_bytes");
    rehearsal.spilled.refused_in_step = std::max(rehearsal.spilled.refused_in_step,
                                                 spilled.at("refused_in_step").get<std::int64_t>());
  }
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

// The files that the processes made, by their log.
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

// Processes that have begun to train, and of these the ones that are done.
std::pair<int, int> begun_and_done(const fs::path& folder) {
  std::pair<int, int> counts;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".begun") ++counts.first;
    if (entry.path().extension() == ".done") ++counts.second;
  }
  return counts;
}

// A script whose children train may wait for ever for their work after the last step.
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

Bytes left(const Rehearsal& rehearsal, int index, const std::vector<gpu::SimulatedCard>& cards) {
  return gpu::usable(cards[static_cast<std::size_t>(index)]) - rehearsal.needs(index);
}

}  // namespace

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "headroom-rehearsal-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw WriteError(pattern, std::string("cannot be made: ") + std::strerror(errno));
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> with_output_in(const fs::path& file,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> words{"sh", "-c", "exec \"$@\" >\"$0\" 2>&1", file};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

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

const RehearsedCard& tightest(const Rehearsal& rehearsal,
                              const std::vector<gpu::SimulatedCard>& cards) {
  return *std::min_element(
      rehearsal.cards.begin(), rehearsal.cards.end(),
      [&](const RehearsedCard& one, const RehearsedCard& other) {
        return std::pair(left(rehearsal, one.index, cards), other.report.peak.process) <
               std::pair(left(rehearsal, other.index, cards), one.report.peak.process);
      });
}

bool fits(const Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards) {
  return !rehearsal.ran_out_of_memory &&
         std::all_of(rehearsal.cards.begin(), rehearsal.cards.end(), [&](const RehearsedCard& one) {
           return left(rehearsal, one.index, cards).count >= 0;
         });
}

Orders without_limit(Orders orders) {
  orders.limits = orders.cards;
  for (gpu::SimulatedCard& card : orders.cards) {
    card.total = allocator::kUnlimited;
    card.reserved = {};
  }
  return orders;
}

Rehearsal rehearse(const Orders& orders) {
  const off_t input = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  Rehearsal rehearsal{.end = {}, .cards = {}, .folder = std::make_shared<const Folder>()};
  const fs::path& folder = rehearsal.folder->path();
  job::Job job({.command = orders.hides_output ? with_output_in(folder / kOutput, orders.command)
                                               : orders.command,
                .environment = environment_for(orders, folder),
                .output_to_error = orders.output_to_error});
  EndOfWaiting waiting(folder);
  rehearsal.end = job.run(Seconds(1), [&](const job::Job&) { waiting.look(job); });
  // A file on standard input is there again for the next run, or for the real one.
  if (input >= 0) (void)::lseek(STDIN_FILENO, input, SEEK_SET);
  rehearsal.was_ended = waiting.ended();
  for (const fs::path& file : files(folder, ".json"))
    add(rehearsal, parse_json(read_file(file).value_or(""), "the report of a rehearsal"));
  clean_up(rehearsal, folder);
  if (orders.hides_output)
    rehearsal.hidden_output = end_of(read_file(folder / kOutput).value_or(""));
  if (const auto traces = files(folder, ".trace"); !traces.empty())
    rehearsal.events = traces.front();
  return rehearsal;
}

Rehearsal rehearse_with_need(const Orders& orders) {
  Rehearsal rehearsal = rehearse(orders);
  if (!rehearsal.ran_out_of_memory) return rehearsal;
  if (orders.say)
    orders.say("out of memory; running again without a limit to measure what it needs");
  Rehearsal whole = rehearse(without_limit(orders));
  if (whole.cards.empty() || !whole.is_whole()) {
    rehearsal.notes.emplace_back(
        "the run without a limit failed: the figures are those until memory ran out, not the need");
    return rehearsal;
  }
  whole.ooms_met = rehearsal.ooms_met;
  whole.ran_out_of_memory = true;
  return whole;
}

Rehearsal rehearse_shares(Orders orders, const std::vector<double>& shares) {
  Rehearsal most;
  std::vector<NeedByShare> needs;
  for (const double share : shares) {
    orders.assume_true = share;
    Rehearsal one = rehearse_with_need(orders);
    if (one.cards.empty() || (!one.is_whole() && !one.ran_out_of_memory)) return one;
    needs.push_back({share, one.needs(tightest(one, orders.cards).index)});
    if (needs.size() == 1 || needs.back().needs > needs.front().needs) most = std::move(one);
  }
  if (shares.size() > 1) most.by_share = std::move(needs);
  return most;
}

}  // namespace headroom::rehearse
