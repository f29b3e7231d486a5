#include "headroom/watch/csv.h"

#include <array>
#include <cmath>
#include <ctime>

#include "headroom/base/text.h"

namespace headroom::watch {
namespace {

std::string mib(std::optional<Bytes> size) {
  return size ? std::to_string(std::llround(size->mib())) : "";
}

std::string percent(std::optional<int> share) {
  return share ? std::to_string(*share) : "";
}

// "+01:00". Tells apart files of several machines, and the hour that repeats when daylight saving
// time ends.
std::string zone(WallTime when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 8> text{};
  std::strftime(text.data(), text.size(), "%z", &parts);
  return std::string(text.data()).insert(3, ":");
}

// Quotes the text only if it needs quotes (RFC 4180).
std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string card_fields(const gpu::Card& card, WallTime when, bool fresh) {
  const bool known = fresh && card.memory.has_value();
  const auto figure = [&](const auto& value) { return fresh ? value : std::nullopt; };
  return join({local_timestamp(when) + zone(when), std::to_string(card.index), csv_field(card.name),
               percent(figure(card.utilization)), percent(figure(card.memory_utilization)),
               mib(known ? std::optional(card.memory->used) : std::nullopt),
               mib(known ? std::optional(card.memory->free) : std::nullopt)},
              ",");
}

std::string process_fields(const gpu::GpuProcess& process) {
  const std::string name = process.command.value_or(to_string(process.kind));
  return "," + (process.pid ? std::to_string(*process.pid) : "") + "," + csv_field(name) + "," +
         mib(process.used);
}

}  // namespace

std::string csv_header(bool processes) {
  return std::string(
             "timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],"
             "memory.free [MiB]") +
         (processes ? ",pid,process,process.used [MiB]" : "") + "\n";
}

std::string csv_rows(const gpu::Machine& machine, WallTime when, bool processes,
                     Clock::time_point now) {
  std::string rows;
  for (const gpu::Card& card : machine.cards) {
    const bool fresh = is_fresh(card, now);
    const std::string fields = card_fields(card, when, fresh);
    if (!processes) {
      rows += fields + "\n";
      continue;
    }
    const auto list = fresh ? card.processes.value_or(std::vector<gpu::GpuProcess>{})
                            : std::vector<gpu::GpuProcess>{};
    for (const gpu::GpuProcess& process : list) rows += fields + process_fields(process) + "\n";
    if (list.empty()) rows += fields + ",,,\n";
  }
  return rows;
}

}  // namespace headroom::watch
