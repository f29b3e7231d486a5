// `headroom log`: samples at an interval, as CSV, NDJSON or a Prometheus text file, or served to
// Prometheus.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/interrupt.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/serve/metrics_endpoint.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/machine/look.h"
#include "headroom/watch/csv.h"
#include "headroom/watch/gpus_json.h"
#include "headroom/watch/prometheus.h"
#include "headroom/watch/rotating_file.h"

namespace headroom::cli {
namespace {

struct LogOptions {
  std::string gpus, format = "csv", out, listen, interval = "1s", rotate = "0";
  long long count = 0;
  int keep = 3;
  bool processes = false;
};

bool writes(const LogOptions& options) {
  return options.listen.empty() || !options.out.empty();
}

// Writes samples: appends to a rotating file or prints. For Prometheus, which reads one state and
// no history, it overwrites the file. Writes nothing if samples are only served.
class Sink {
 public:
  explicit Sink(const LogOptions& options) : options_(options) {
    const Bytes limit = parse_bytes(options.rotate);
    if (is_prometheus() && limit > Bytes{0})
      throw UsageError(expectation("--rotate",
                                   "no rotation with --format prometheus, whose file "
                                   "holds one sample",
                                   options.rotate));
    const std::string header = options.format == "csv" ? watch::csv_header(options.processes) : "";
    if (options.out.empty()) {
      if (limit > Bytes{0})
        throw UsageError(expectation("--rotate", "a file to rotate (--out)", options.rotate));
      if (writes(options)) print(header);
    } else if (!is_prometheus()) {
      file_ = std::make_unique<watch::RotatingFile>(options.out, header,
                                                    watch::RotationOptions{limit, options.keep});
    }
  }

  void write(const gpu::Machine& machine) {
    if (!writes(options_)) return;
    const std::string text = text_of(machine);
    if (file_) {
      file_->append(text);
    } else if (options_.out.empty()) {
      print(text);
    } else {
      write_file_atomically(options_.out, text);
    }
  }

 private:
  [[nodiscard]] bool is_prometheus() const { return options_.format == "prometheus"; }

  [[nodiscard]] std::string text_of(const gpu::Machine& machine) const {
    const auto now = std::chrono::system_clock::now();
    if (options_.format == "csv") return watch::csv_rows(machine, now, options_.processes);
    if (is_prometheus())
      return watch::prometheus_text(watch::metrics_now(machine, {.processes = options_.processes}));
    Json document{{"timestamp", utc_timestamp(now)}};
    document.update(watch::gpus_document(machine, {watch::data_warnings(machine), {}}));
    return to_line(document) + "\n";
  }

  const LogOptions& options_;
  std::unique_ptr<watch::RotatingFile> file_;
};

Seconds interval_of(const LogOptions& options) {
  const Seconds interval = parse_duration(options.interval);
  if (interval < Seconds(0.05))
    throw UsageError(expectation("--interval",
                                 "at least 50ms: the driver serialises its callers, "
                                 "and asking more often slows the jobs",
                                 options.interval, "1s"));
  return interval;
}

void check(const LogOptions& options) {
  if (options.format != "csv" && options.format != "ndjson" && options.format != "prometheus")
    throw UsageError(expectation("--format", "csv, ndjson or prometheus", options.format));
  if (options.format == "ndjson" && !writes(options))
    throw UsageError(expectation("--format",
                                 "a file for it (--out), because --listen serves "
                                 "Prometheus's format",
                                 options.format));
  if (options.count < 0)
    throw UsageError(expectation("--count", "a number of samples (0: until Ctrl-C)",
                                 std::to_string(options.count)));
}

// Reports each problem with the data once, and again when it changes.
class Complaints {
 public:
  void about(const gpu::Machine& machine) {
    // Leaves out the age of a hung driver's data, which grows with every sample.
    std::string kind = machine.silent ? "silent" : machine.why_no_driver;
    for (const gpu::Card& card : machine.cards) {
      const auto old = age(card, Clock::now());
      if (!old || *old > gpu::kFreshFor) kind += label(card) + " ";
      kind += card.trouble;
    }
    if (kind == said_) return;
    said_ = kind;
    for (const std::string& warning : watch::data_warnings(machine))
      print_error("headroom log: " + warning + "\n");
  }

 private:
  std::string said_;
};

// The endpoint of --listen; null without it.
std::unique_ptr<MetricsEndpoint> served(const LogOptions& options, Seconds interval,
                                        MetricsEndpoint::Latest latest) {
  if (options.listen.empty()) return nullptr;
  auto endpoint = std::make_unique<MetricsEndpoint>(
      options.listen,
      watch::MetricsOptions{.processes = options.processes, .fresh_for = gpu::kFreshFor + interval},
      std::move(latest));
  print_error("headroom log: listening on " + endpoint->url() + "/metrics\n");
  return endpoint;
}

ExitCode run_log(const LogOptions& options) {
  check(options);
  const Seconds interval = interval_of(options);
  const gpu::Devices devices = gpu::devices_from(options.gpus);
  const Interrupt interrupt;  // before the sampler's thread
  // At long intervals, samples only when a sample is due: one from an interval ago would be too
  // old.
  const bool ask_each_time = interval > Seconds(1);
  gpu::Sampler sampler(
      gpu::make_source(devices),
      {.interval = interval,
       .process_interval = std::max(interval, Seconds(1)),
       .processes = options.processes || options.format != "csv" || !options.listen.empty(),
       .keep_sampling = !ask_each_time});
  Complaints complaints;
  const auto narrow = [&](gpu::Machine all) { return narrowed(std::move(all), devices, {}); };
  gpu::Machine machine = narrow(sampler.fresh());
  Sink sink(options);  // no file is created for cards that do not exist
  const auto endpoint = served(options, interval, [&] { return narrow(sampler.snapshot()); });
  auto next = Clock::now();
  for (long long n = 0; options.count == 0 || n < options.count; ++n) {
    if (n > 0) {
      next += std::chrono::duration_cast<Clock::duration>(interval);
      if (!sleep_for(next - Clock::now(), interrupt.token())) return interrupt.exit_code();
      // A driver that has not even opened cannot be asked; waiting for it would delay Ctrl-C.
      const bool ask = ask_each_time && !machine.silent;
      machine = narrow(ask ? sampler.fresh() : sampler.snapshot());
    }
    complaints.about(machine);
    sink.write(machine);
  }
  return kOk;
}

}  // namespace

void add_log(Registry& registry) {
  auto [command, options] =
      registry.add(&run_log, "log", "Sample the GPUs at an interval: CSV, NDJSON or for Prometheus",
                   "  headroom log --interval 1s --count 60 > gpus.csv\n"
                   "  headroom log --format ndjson --out gpus.ndjson --rotate 100MiB --keep 5\n"
                   "  headroom log --processes --interval 5s\n"
                   "  headroom log --format prometheus --out /var/lib/node_exporter/headroom.prom\n"
                   "  headroom log --listen :9400 --processes");
  add_gpus_option(command, options->gpus);
  command->add_option("--interval", options->interval, "Time between samples")
      ->capture_default_str();
  command->add_option("--count", options->count, "Number of samples (0: until Ctrl-C)")
      ->capture_default_str();
  command->add_flag("--processes", options->processes,
                    "Write a line for each process on each card");
  command->add_option("--format", options->format, "Format: csv, ndjson or prometheus")
      ->capture_default_str();
  command->add_option("--out", options->out, "File to write (default: standard output)");
  command
      ->add_option("--listen", options->listen,
                   "Serve /metrics for Prometheus and /healthz at [ADDRESS]:PORT (without "
                   "address: on loopback; port 0: any), and write no samples without --out")
      ->check([](const std::string& text) {
        return std::string(text.empty() ? "expected an address such as :9400, received none" : "");
      });
  command
      ->add_option("--rotate", options->rotate,
                   "Start a new file at this size (FILE.1, FILE.2, ...); 0: never")
      ->capture_default_str();
  command->add_option("--keep", options->keep, "Number of old files to keep")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
}

}  // namespace headroom::cli
