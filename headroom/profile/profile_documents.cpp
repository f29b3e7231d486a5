// A profile as JSON and as a Chrome trace.
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/profile/profile.h"
#include "headroom/trace/chrome_events.h"

namespace headroom::profile {
namespace {

constexpr std::string_view kKindNames[] = {"operator", "range", "allocation", "module"};

std::string_view kind_text(CallKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

Json shapes_json(const std::string& shapes) {
  return shapes.empty() ? Json() : parse_json(shapes, "shapes");
}

Json to_json(const ProfileRow& row) {
  return {{"name", row.name},
          {"kind", kind_text(row.kind)},
          {"calls", row.calls},
          {"shapes", shapes_json(row.shapes)},
          {"cpu_s", row.cpu_s},
          {"self_cpu_s", row.self_cpu_s},
          {"device_s", or_null(row.device_s)},
          {"self_device_s", or_null(row.self_device_s)},
          {"self_bytes", row.self_bytes.count},
          {"total_bytes", row.total_bytes.count},
          {"self_kept_bytes", row.self_kept.count},
          {"cpu_bytes", row.cpu_bytes.count},
          {"self_cpu_bytes", row.self_cpu_bytes.count}};
}

// Microseconds since the first call, as the viewers take them.
double micros(std::int64_t time_ns, std::int64_t start_ns) {
  return static_cast<double>(time_ns - start_ns) / 1e3;
}

class ChromeFile {
 public:
  ChromeFile(const Profile& profile, const std::string& path) : profile_(profile), events_(path) {
    if (!profile.calls.empty()) start_ns_ = profile.calls.front().start_ns;
  }

  // Figures that are 0 are left out.
  void add(const Call& call) {
    Json arguments = Json::object();
    if (call.module != 0) arguments["module"] = text(call.module);
    if (call.shapes != 0) arguments["shapes"] = parse_json(text(call.shapes), "shapes");
    if (call.device.count != 0) arguments["self_bytes"] = call.device.count;
    if (call.cpu.count != 0) arguments["self_cpu_bytes"] = call.cpu.count;
    if (call.device_s != 0) arguments["self_device_s"] = call.device_s;
    write({{"ph", "X"},
           {"cat", kind_text(call.kind)},
           {"name", text(call.name)},
           {"pid", 1},
           {"tid", thread(call.thread)},
           {"ts", micros(call.start_ns, start_ns_)},
           {"dur", static_cast<double>(call.end_ns - call.start_ns) / 1e3},
           {"args", std::move(arguments)}});
  }

  void add(const MemorySample& sample) {
    write({{"ph", "C"},
           {"name", "memory " + text(sample.device)},
           {"pid", 1},
           {"ts", micros(sample.time_ns, start_ns_)},
           {"args", {{"allocated", sample.allocated.count}}}});
  }

  void finish() { events_.finish({{"program", "headroom profile"}}); }

 private:
  void write(const Json& event) {
    const std::string line = to_line(event);
    events_.put(std::string_view(line).substr(1, line.size() - 2));  // without braces
  }
  [[nodiscard]] std::string text(trace::Name name) const {
    return std::string(profile_.names.text(name));
  }
  // Numbered by first appearance.
  std::size_t thread(std::uint64_t number) {
    return threads_.try_emplace(number, threads_.size() + 1).first->second;
  }

  const Profile& profile_;
  trace::ChromeEvents events_;
  std::int64_t start_ns_ = 0;
  std::map<std::uint64_t, std::size_t> threads_;
};

}  // namespace

Json to_json(const Profile& profile, const ProfileView& view) {
  Json listed = Json::array();
  for (const ProfileRow& row : rows(profile, view)) listed.push_back(to_json(row));
  return {{"schema", 1},
          {"group_by", to_string(view.group_by)},
          {"sort_by", view.sort_by},
          {"rows", std::move(listed)},
          {"knows_modules", profile.knows_modules},
          {"simulated_time", profile.simulated_time},
          {"rates_of", profile.rates_of.empty() ? Json() : Json(profile.rates_of)}};
}

void write_chrome(const Profile& profile, const std::string& path) {
  ChromeFile file(profile, path);
  for (const Call& call : profile.calls)
    if (call.kind != CallKind::allocation) file.add(call);
  for (const MemorySample& sample : profile.samples) file.add(sample);
  file.finish();
}

}  // namespace headroom::profile
