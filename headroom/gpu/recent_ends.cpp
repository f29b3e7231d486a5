#include "headroom/gpu/recent_ends.h"

#include <filesystem>
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

// Cards of which a process was seen before and is gone now.
std::set<Uuid> ended_since(const Json& seen, const ProcessTable& processes) {
  std::set<Uuid> cards;
  for (const Json& entry : seen.at("processes")) {
    const ProcessIdentity process{entry.at("pid").get<pid_t>(),
                                  entry.at("start_ticks").get<long long>()};
    const auto card = Uuid::parse(entry.at("card").get<std::string>());
    if (card && !processes.alive(process)) cards.insert(*card);
  }
  return cards;
}

// What was seen less than 10 s ago; an unreadable file is as good as none.
Json last_seen() {
  try {
    const auto text = read_file(file_path());
    if (!text) return {};
    Json seen = parse_json(*text, "seen-processes.json");
    const double ago = wall_seconds() - seen.at("time").get<double>();
    return ago >= 0 && ago <= kRecent.count() ? seen : Json{};
  } catch (const std::exception&) {
    return {};
  }
}

void write(const Machine& machine) {
  Json seen{{"time", wall_seconds()}, {"processes", Json::array()}};
  for (const Card& card : machine.cards)
    for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
      if (process.pid)
        seen["processes"].push_back({{"card", to_string(card.uuid)},
                                     {"pid", *process.pid},
                                     {"start_ticks", process.start_ticks}});
  std::error_code ignored;
  std::filesystem::create_directories(file_path().parent_path(), ignored);
  try {
    write_file_atomically(file_path(), to_line(seen) + "\n");
  } catch (const WriteError&) {  // see the header: knowing less next time is no failure now
  }
}

}  // namespace

std::set<Uuid> note_processes(const Machine& machine, const ProcessTable& processes) {
  std::set<Uuid> ended;
  try {
    if (const Json seen = last_seen(); !seen.is_null()) ended = ended_since(seen, processes);
  } catch (const Json::exception&) {  // another version's file
  }
  write(machine);
  return ended;
}

}  // namespace headroom::gpu
