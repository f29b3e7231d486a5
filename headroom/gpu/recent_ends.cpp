#include "headroom/gpu/recent_ends.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"

namespace headroom::gpu {
namespace {

std::filesystem::path file_path() {
  return state_dir() / "seen-processes.json";
}

double wall_seconds() {
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

// When an end was noticed, in wall seconds, by card.
using Ends = std::map<Uuid, double>;

// The recent ends that an earlier decision noticed, and the new ones: processes that it listed and
// that are gone now.
Ends ends_known_from(const Json& seen, const ProcessTable& processes, double now) {
  Ends ends;
  for (const Json& end : seen.at("ended")) {
    const double noticed = end.at("time").get<double>();
    if (now - noticed >= 0 && now - noticed <= kRecent.count())
      ends[Uuid::from_driver(end.at("card").get<std::string>())] = noticed;
  }
  for (const Json& entry : seen.at("processes")) {
    const ProcessIdentity process{entry.at("pid").get<pid_t>(),
                                  entry.at("start_ticks").get<long long>()};
    const Uuid card = Uuid::from_driver(entry.at("card").get<std::string>());
    if (!processes.alive(process)) ends[card] = now;
  }
  return ends;
}

// The process list of a decision less than 10 s ago; an unreadable file counts as none.
Json last_seen(double now) {
  try {
    const auto text = read_file(file_path());
    if (!text) return {};
    Json seen = parse_json(*text, "seen-processes.json");
    const double ago = now - seen.at("time").get<double>();
    return ago >= 0 && ago <= kRecent.count() ? seen : Json{};
  } catch (const std::exception&) {
    return {};
  }
}

void write(const Machine& machine, const Ends& ends, double now) {
  Json seen{{"time", now}, {"processes", Json::array()}, {"ended", Json::array()}};
  for (const Card& card : machine.cards)
    for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
      if (process.pid)
        seen["processes"].push_back({{"card", to_string(card.uuid)},
                                     {"pid", *process.pid},
                                     {"start_ticks", process.start_ticks}});
  for (const auto& [card, noticed] : ends)
    seen["ended"].push_back({{"card", to_string(card)}, {"time", noticed}});
  std::error_code ignored;
  std::filesystem::create_directories(file_path().parent_path(), ignored);
  try {
    write_file_atomically(file_path(), to_line(seen) + "\n");
  } catch (const WriteError&) {  // see the header: the next decision only knows less
  }
}

}  // namespace

std::set<Uuid> note_processes(const Machine& machine, const ProcessTable& processes) {
  const double now = wall_seconds();
  Ends ends;
  try {
    if (const Json seen = last_seen(now); !seen.is_null())
      ends = ends_known_from(seen, processes, now);
  } catch (const Json::exception&) {  // a file of another version
  }
  write(machine, ends, now);
  std::set<Uuid> cards;
  for (const auto& [card, noticed] : ends) cards.insert(card);
  return cards;
}

}  // namespace headroom::gpu
