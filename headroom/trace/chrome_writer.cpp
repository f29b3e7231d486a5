#include "headroom/trace/chrome_writer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "headroom/base/json.h"
#include "headroom/trace/chrome_events.h"
#include "headroom/trace/detail/thinned_track.h"

namespace headroom::trace {
namespace {

using detail::Sample;
using detail::ThinnedTrack;

// The rows of a device below its tracks.
enum Lane : int { kStepLane = 1, kPhaseLane = 2, kModuleLane = 3 };
constexpr int kLanes = 3;
constexpr const char* kLaneNames[kLanes] = {"steps", "phases", "modules"};

constexpr int kTracks = 4;
constexpr const char* kTrackNames[kTracks] = {"allocated", "reserved", "active", "requested"};

// Microseconds with three decimals.
std::string microseconds(std::int64_t ns) {
  const std::string rest = std::to_string(1000 + ns % 1000);
  return std::to_string(ns / 1000) + "." + rest.substr(1);
}

// Viewers treat process 0 as idle.
int process_of(std::uint16_t device) {
  return device + 1;
}

// The fields with which every event of the file begins.
std::string at(std::string_view kind, std::uint16_t device, std::int64_t time_ns) {
  return std::string(kind) + ",\"pid\":" + std::to_string(process_of(device)) +
         ",\"ts\":" + microseconds(time_ns);
}

// A time span with the same step, phase or module.
struct Slice {
  std::uint64_t what = 0;  // 0: none
  std::string name;
  std::int64_t begin_ns = 0;
};

struct Device {
  ThinnedTrack tracks[kTracks];
  Slice slices[kLanes];
  std::int64_t last_ns = 0;
};

}  // namespace

struct ChromeWriter::File {
  File(const std::filesystem::path& path, const About& what, const Names& all_names,
       std::uint64_t most)
      : output(path), about(what), names(all_names), most_samples(most) {}

  Device& device(std::uint16_t number);
  std::int64_t time_of(const Event& event, Device& device);
  void add_samples(Device& device, std::int64_t time_ns, const Figures& figures);
  void change_slices(const Event& event, Device& device, std::int64_t time_ns);
  // Calls `name` for the slice's name only if a new slice begins.
  template <typename NameOf>
  void change_slice(std::uint16_t number, Device& device, Lane lane, std::uint64_t what,
                    const NameOf& name, std::int64_t time_ns);
  void put_slice(std::uint16_t number, Lane lane, const Slice& slice, std::int64_t end_ns);
  void put_instant(const Event& event, std::int64_t time_ns);
  void put_track(std::uint16_t device, const ThinnedTrack& track, const std::string& name);
  void put(std::string_view members) { output.put(members); }
  void put_names(std::uint16_t number);

  ChromeEvents output;
  About about;
  const Names& names;
  std::uint64_t most_samples;
  std::map<std::uint16_t, Device> devices;
  std::optional<std::int64_t> start_ns;
  std::int64_t events = 0;
  std::uint64_t samples = 0, module_slices = 0, left_out_slices = 0;
};

Device& ChromeWriter::File::device(std::uint16_t number) {
  const auto [found, is_new] = devices.try_emplace(number);
  if (is_new) put_names(number);
  return found->second;
}

void ChromeWriter::File::put_names(std::uint16_t number) {
  const std::string process = R"("ph":"M","pid":)" + std::to_string(process_of(number));
  put(process + R"(,"name":"process_name","args":{"name":"GPU )" + std::to_string(number) + "\"}");
  put(process + R"(,"name":"process_sort_index","args":{"sort_index":)" + std::to_string(number) +
      "}");
  for (int lane = 0; lane < kLanes; ++lane)
    put(process + ",\"tid\":" + std::to_string(lane + 1) +
        R"(,"name":"thread_name","args":{"name":")" + kLaneNames[lane] + "\"}");
}

// Time since the first event; without clocks, the number of the event as microseconds. It never
// goes backwards on a device, because viewers cannot handle that.
std::int64_t ChromeWriter::File::time_of(const Event& event, Device& device) {
  if (!start_ns) start_ns = event.time_ns;
  std::int64_t since = 1000 * events;
  if (about.times_are_known && __builtin_sub_overflow(event.time_ns, *start_ns, &since)) since = 0;
  device.last_ns = std::max(device.last_ns, since);
  return device.last_ns;
}

void ChromeWriter::File::add_samples(Device& device, std::int64_t time_ns, const Figures& figures) {
  const std::optional<Bytes> values[kTracks] = {figures.allocated, figures.reserved, figures.active,
                                                figures.requested};
  for (int i = 0; i < kTracks; ++i)
    if (values[i]) device.tracks[i].add({time_ns, values[i]->count});
  if (events % 1024 != 0) return;
  const auto all = [&] {
    std::uint64_t sum = 0;
    for (const auto& [number, each] : devices)
      for (const ThinnedTrack& track : each.tracks) sum += track.size();
    return sum;
  };
  for (std::uint64_t before = all(); before > most_samples;) {
    for (auto& [number, each] : devices)
      for (ThinnedTrack& track : each.tracks) track.thin();
    // The first two thinnings leave size() as it is: a stretch keeps up to four samples. Stop when
    // each track has one stretch left.
    const std::uint64_t after = all();
    if (after <= 4 * kTracks * devices.size()) return;
    before = after;
  }
}

template <typename NameOf>
void ChromeWriter::File::change_slice(std::uint16_t number, Device& device, Lane lane,
                                      std::uint64_t what, const NameOf& name,
                                      std::int64_t time_ns) {
  Slice& slice = device.slices[lane - 1];
  if (slice.what == what) return;  // the usual case
  const Slice ended = std::exchange(slice, {what, std::string(name()), time_ns});
  if (ended.what != 0) put_slice(number, lane, ended, time_ns);
}

void ChromeWriter::File::put_slice(std::uint16_t number, Lane lane, const Slice& slice,
                                   std::int64_t end_ns) {
  if (lane == kModuleLane && ++module_slices > most_samples) {
    ++left_out_slices;
    return;
  }
  put(at(R"("ph":"X")", number, slice.begin_ns) + ",\"tid\":" + std::to_string(lane) + ",\"dur\":" +
      microseconds(end_ns - slice.begin_ns) + ",\"name\":" + to_line(Json(slice.name)));
}

void ChromeWriter::File::change_slices(const Event& event, Device& device, std::int64_t time_ns) {
  const std::uint16_t number = event.device;
  change_slice(
      number, device, kStepLane, event.step, [&] { return "step " + std::to_string(event.step); },
      time_ns);
  change_slice(
      number, device, kPhaseLane, static_cast<std::uint64_t>(event.phase),
      [&] { return to_string(event.phase); }, time_ns);
  // A free happens wherever a tensor's life ends, so it does not show the running module.
  if (event.kind == Kind::alloc)
    change_slice(
        number, device, kModuleLane, event.module, [&] { return names.text(event.module); },
        time_ns);
}

void ChromeWriter::File::put_instant(const Event& event, std::int64_t time_ns) {
  std::string text;
  switch (event.kind) {
    case Kind::oom:
      text = "out of memory: asked for " + to_string(event.bytes);
      break;
    case Kind::mark:
      text = names.text(event.operation);
      break;
    case Kind::settings:
      text = "settings: " + std::string(names.text(event.operation));
      break;
    case Kind::empty_cache:
      text = "empty cache";
      break;
    default:
      return;
  }
  put(at(R"("ph":"i","s":"p")", event.device, time_ns) + ",\"tid\":" + std::to_string(kStepLane) +
      ",\"name\":" + to_line(Json(text)));
}

void ChromeWriter::File::put_track(std::uint16_t device, const ThinnedTrack& track,
                                   const std::string& name) {
  track.each([&](const Sample& sample) {
    put(at(R"("ph":"C")", device, sample.time_ns) + ",\"name\":\"" + name +
        R"(","args":{"bytes":)" + std::to_string(sample.value) + "}");
    ++samples;
  });
}

ChromeWriter::ChromeWriter(const std::filesystem::path& path, const About& about,
                           const Names& names, std::uint64_t most_samples)
    : file_(std::make_unique<File>(path, about, names, most_samples)) {}

ChromeWriter::~ChromeWriter() = default;

void ChromeWriter::append(const Event& event, const Figures& figures) {
  Device& device = file_->device(event.device);
  const std::int64_t time_ns = file_->time_of(event, device);
  ++file_->events;
  file_->add_samples(device, time_ns, figures);
  file_->change_slices(event, device, time_ns);
  file_->put_instant(event, time_ns);
}

void ChromeWriter::finish() {
  File& file = *file_;
  for (auto& [number, device] : file.devices)
    for (const Lane lane : {kStepLane, kPhaseLane, kModuleLane})
      file.change_slice(
          number, device, lane, 0, [] { return ""; }, device.last_ns);
  for (const auto& [number, device] : file.devices)
    for (int i = 0; i < kTracks; ++i) file.put_track(number, device.tracks[i], kTrackNames[i]);
  Json other{{"program", file.about.program},
             {"settings", file.about.settings},
             {"events", std::to_string(file.events)},
             {"samples", std::to_string(file.samples)},
             {"module_slices_left_out", std::to_string(file.left_out_slices)}};
  other["times"] = file.about.times_are_known ? "since the first event"
                                              : "unknown: one microsecond stands for one event";
  if (file.about.times_are_known)
    other["first_event_ns"] = std::to_string(file.start_ns.value_or(0));
  file.output.finish(other);
}

std::uint64_t ChromeWriter::samples_written() const {
  return file_->samples;
}

}  // namespace headroom::trace
