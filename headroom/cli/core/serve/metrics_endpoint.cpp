#include "headroom/cli/core/serve/metrics_endpoint.h"

#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/process.h"
#include "headroom/cli/core/serve/listen_address.h"
#include "headroom/cli/core/version.h"
#include "headroom/watch/prometheus.h"

namespace headroom::cli {
namespace {

using watch::Families;
using watch::MetricKind;

std::string links() {
  return std::string("<!doctype html><title>headroom</title><h1>headroom ") + kVersion +
         "</h1>\n"
         "<p><a href=\"/metrics\">/metrics</a>: the GPUs of this machine, for Prometheus</p>\n"
         "<p><a href=\"/healthz\">/healthz</a>: whether the driver answers</p>\n";
}

// The driver's list is as old as the last sample; a process may have ended since.
void drop_ended(gpu::Machine& machine) {
  const ProcessTable table;
  for (gpu::Card& card : machine.cards)
    if (card.processes)
      std::erase_if(*card.processes, [&](const gpu::GpuProcess& process) {
        return process.pid && process.start_ticks != 0 &&
               !table.alive({*process.pid, process.start_ticks});
      });
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void add(Families& families, const char* name, MetricKind kind, const char* help,
         std::optional<double> value, watch::Labels labels = {}) {
  if (value)
    families.push_back(
        {.name = name, .kind = kind, .help = help, .series = {{std::move(labels), *value}}});
}

std::optional<double> resident_bytes() {
  const auto resident = kib_field(read_file("/proc/self/status").value_or(""), "VmRSS:");
  return resident ? std::optional(static_cast<double>(resident->count)) : std::nullopt;
}

std::optional<double> open_descriptors() {
  std::error_code error;
  std::filesystem::directory_iterator all("/proc/self/fd", error);
  if (error) return {};
  return static_cast<double>(std::distance(begin(all), end(all)) - 1);  // without the folder's own
}

// Names and meanings are those of Prometheus's own clients.
void add_own(Families& families, double scrapes) {
  add(families, "headroom_build", MetricKind::info, "The running version of Headroom.", 1,
      {{"version", kVersion}});
  add(families, "headroom_scrapes", MetricKind::counter, "Scrapes answered, this one included.",
      scrapes);
  add(families, "process_cpu_seconds", MetricKind::counter,
      "CPU time that this program has used, user and system.", cpu_seconds());
  add(families, "process_resident_memory_bytes", MetricKind::gauge,
      "Resident memory of this program.", resident_bytes());
  add(families, "process_open_fds", MetricKind::gauge, "Open file descriptors of this program.",
      open_descriptors());
}

class Pages {
 public:
  Pages(watch::MetricsOptions options, MetricsEndpoint::Latest latest)
      : options_(options), latest_(std::move(latest)) {}

  [[nodiscard]] HttpAnswer answer(const HttpRequest& request) {
    if (request.path == "/metrics") return metrics(watch::preferred_format(request.accept));
    if (request.path == "/healthz") return health_of(latest_(), options_.fresh_for);
    if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = links()};
    return {.status = 404, .body = "pages: /metrics /healthz\n"};
  }

 private:
  [[nodiscard]] HttpAnswer metrics(watch::TextFormat format) {
    gpu::Machine machine = latest_();
    drop_ended(machine);
    Families families = metrics_now(machine, options_);
    add_own(families, static_cast<double>(++scrapes_));
    return {.type = content_type(format), .body = prometheus_text(families, format)};
  }

  const watch::MetricsOptions options_;
  const MetricsEndpoint::Latest latest_;
  std::atomic<long long> scrapes_{0};
};

HttpServer::Answer pages(watch::MetricsOptions options, MetricsEndpoint::Latest latest) {
  const auto all = std::make_shared<Pages>(options, std::move(latest));
  return [all](const HttpRequest& request) { return all->answer(request); };
}

std::string why_unhealthy(const gpu::Machine& machine, Seconds fresh_for, Clock::time_point now) {
  if (machine.silent) return machine.why_no_driver;
  for (const gpu::Card& card : machine.cards) {
    const auto old = age(card, now);
    if (!old) return label(card) + ": the driver has not answered yet";
    if (*old > fresh_for) return label(card) + ": no answer for " + duration_text(*old);
  }
  return {};
}

}  // namespace

// The socket is opened before the first thread, so that an address in use starts nothing.
MetricsEndpoint::MetricsEndpoint(const std::string& address, watch::MetricsOptions options,
                                 Latest latest)
    : MetricsEndpoint(listen_at(parse_listen_address(address)), pages(options, std::move(latest))) {
}

MetricsEndpoint::MetricsEndpoint(Descriptor listening, HttpServer::Answer answer)
    : url_(url_of(listening)), server_(std::move(listening), std::move(answer)) {}

HttpAnswer health_of(const gpu::Machine& machine, Seconds fresh_for, Clock::time_point now) {
  const std::string trouble = why_unhealthy(machine, fresh_for, now);
  if (!trouble.empty()) return {.status = 503, .body = trouble + "\n"};
  if (!machine.driver && !machine.simulated)
    return {.body = "ok: no driver: " + machine.why_no_driver + "\n"};
  return {.body = "ok\n"};
}

}  // namespace headroom::cli
