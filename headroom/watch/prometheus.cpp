#include "headroom/watch/prometheus.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/lease/lease_text.h"

namespace headroom::watch {
namespace {

std::string label_value(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string labels_of(const gpu::Card& card) {
  return "index=\"" + std::to_string(card.index) + "\",uuid=" + label_value(to_string(card.uuid)) +
         ",name=" + label_value(card.name);
}

std::string number(double value) {
  return Json(value).dump();
}  // shortest form that reads back as the same number

struct Gauge {
  const char* name;
  const char* help;
  std::function<std::optional<double>(const gpu::Card&)> read;
};

std::optional<double> bytes_of(const gpu::Card& card, Bytes gpu::CardMemory::*part) {
  if (!card.memory) return {};
  return static_cast<double>(((*card.memory).*part).count);
}

const std::vector<Gauge>& gauges() {
  using gpu::Card;
  using gpu::CardMemory;
  static const std::vector<Gauge> all{
      {"headroom_gpu_memory_total_bytes", "Memory of the card.",
       [](const Card& c) { return bytes_of(c, &CardMemory::total); }},
      {"headroom_gpu_memory_used_bytes", "Memory in use by all processes.",
       [](const Card& c) { return bytes_of(c, &CardMemory::used); }},
      {"headroom_gpu_memory_free_bytes", "Memory that the driver would still hand out.",
       [](const Card& c) { return bytes_of(c, &CardMemory::free); }},
      {"headroom_gpu_memory_reserved_bytes", "Memory the driver keeps for itself.",
       [](const Card& c) -> std::optional<double> {
         if (!c.memory || !c.memory->reserved) return {};
         return static_cast<double>(c.memory->reserved->count);
       }},
      {"headroom_gpu_utilization_ratio", "Share of the last window with any kernel running.",
       [](const Card& c) -> std::optional<double> {
         if (!c.utilization) return {};
         return *c.utilization / 100.0;
       }},
      {"headroom_gpu_temperature_celsius", "Temperature of the chip.",
       [](const Card& c) -> std::optional<double> { return c.temperature_c; }},
      {"headroom_gpu_power_watts", "Power drawn.", [](const Card& c) { return c.power_w; }},
  };
  return all;
}

std::string heading(const char* name, const char* help) {
  return std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " gauge\n";
}

using ByUser = std::map<std::string, Bytes>;

ByUser reserved_by_user(const gpu::Card& card, const lease::Contents& contents) {
  ByUser reserved;
  for (const lease::Claim& lease : contents.leases)
    if (const Bytes share = reserved_on(lease, card.uuid); share.count > 0)
      reserved[user_of(lease)] += share;
  return reserved;
}

std::string line_of(const char* name, const std::string& labels, double value) {
  return std::string(name) + (labels.empty() ? "" : "{" + labels + "}") + " " + number(value) +
         "\n";
}

std::string reserved_series(const gpu::Machine& machine, const lease::Contents& contents) {
  constexpr const char* kName = "headroom_lease_reserved_bytes";
  std::string series;
  for (const gpu::Card& card : machine.cards)
    for (const auto& [user, reserved] : reserved_by_user(card, contents))
      series += line_of(kName, labels_of(card) + ",user=" + label_value(user),
                        static_cast<double>(reserved.count));
  return series.empty() ? series : heading(kName, "Reserved by leases of one user.") + series;
}

std::string process_series(const gpu::Machine& machine, Clock::time_point now) {
  constexpr const char* kName = "headroom_gpu_process_memory_used_bytes";
  std::string text = heading(kName, "Memory of one process on one card.");
  for (const gpu::Card& card : machine.cards) {
    if (!is_fresh(card, now)) continue;
    for (const auto& process : card.processes.value_or(std::vector<gpu::GpuProcess>{}))
      if (process.pid && process.used)
        text += std::string(kName) + "{" + labels_of(card) + ",pid=\"" +
                std::to_string(*process.pid) + "\",user=" + label_value(process.user.value_or("")) +
                "} " + number(static_cast<double>(process.used->count)) + "\n";
  }
  return text;
}

}  // namespace

std::string prometheus_text(const gpu::Machine& machine, bool processes, Clock::time_point now) {
  std::string text;
  for (const Gauge& gauge : gauges()) {
    std::string series;
    for (const gpu::Card& card : machine.cards) {
      const auto value = is_fresh(card, now) ? gauge.read(card) : std::nullopt;
      if (value)
        series += std::string(gauge.name) + "{" + labels_of(card) + "} " + number(*value) + "\n";
    }
    if (!series.empty()) text += heading(gauge.name, gauge.help) + series;
  }
  // When the driver hangs, all other series of the card disappear; an alert can watch this one.
  std::string ages;
  for (const gpu::Card& card : machine.cards)
    if (const auto old = age(card, now))
      ages +=
          "headroom_gpu_sample_age_seconds{" + labels_of(card) + "} " + number(old->count()) + "\n";
  if (!ages.empty())
    text += heading("headroom_gpu_sample_age_seconds", "Time since the card last answered.") + ages;
  if (processes) text += process_series(machine, now);
  return text;
}

std::string prometheus_leases(const gpu::Machine& machine, const lease::Contents& contents,
                              Clock::time_point now) {
  constexpr const char* kUsable = "headroom_gpu_memory_usable_bytes";
  constexpr const char* kUnused = "headroom_lease_unused_bytes";
  std::string usable, unused;
  for (const gpu::Card& card : machine.cards) {
    if (!is_fresh(card, now) || card.mig_enabled) continue;
    unused += line_of(kUnused, labels_of(card), static_cast<double>(card.withheld.now.count));
    if (const auto room = usable_now(card))
      usable += line_of(kUsable, labels_of(card), static_cast<double>(room->count));
  }
  std::string text;
  if (!usable.empty())
    text += heading(kUsable, "Memory that a new job could reserve now.") + usable;
  if (!unused.empty()) text += heading(kUnused, "Reserved by leases and not used yet.") + unused;
  text += reserved_series(machine, contents);
  const auto looking = std::count_if(contents.waiting.begin(), contents.waiting.end(),
                                     [](const lease::Waiter& waiter) { return waiter.looking; });
  text += heading("headroom_leases", "Leases of this machine.") +
          line_of("headroom_leases", "", static_cast<double>(contents.leases.size()));
  return text + heading("headroom_waiting_jobs", "Jobs that wait for memory.") +
         line_of("headroom_waiting_jobs", "", static_cast<double>(looking));
}

}  // namespace headroom::watch
