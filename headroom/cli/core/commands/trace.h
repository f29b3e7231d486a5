// Shared by the `headroom trace` commands: the input file, the progress line, and warnings about
// the trace.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headroom/base/time.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/trace/reader.h"
#include "headroom/trace/replay.h"

namespace headroom::cli {

void add_trace_replay(Registry& registry, CLI::App* group);
void add_trace_export(Registry& registry, CLI::App* group);  // snapshot, chrome, report
void add_trace_top(Registry& registry, CLI::App* group);
void add_trace_diff(Registry& registry, CLI::App* group);

// FILE and --device, which all of them have.
struct TraceFile {
  std::string path;
  int device = -1;  // -1: the first that appears

  void add_to(CLI::App* command);
  [[nodiscard]] std::string name() const { return path == "-" ? "standard input" : path; }
  [[nodiscard]] std::optional<std::uint16_t> device_number() const;
};

// The card described by --capacity, --fraction, --hold-events and --addresses.
struct CardChoice {
  std::string capacity = "unlimited", addresses = "ascending", torch;
  std::optional<double> fraction;
  bool hold_events = false;

  void add_to(CLI::App* command);
  [[nodiscard]] trace::CardSetup setup() const;
};

// "reading run.hrtrace: 43 %" on standard error, if reading takes longer than a second. In a log,
// where each update is a new line, if it takes longer than 30 s.
class TraceProgress {
 public:
  explicit TraceProgress(std::string name) : name_(std::move(name)) {}
  void show(const trace::Reader& reader);
  void show_search(int tried);
  void clear() { line_.clear(); }

 private:
  [[nodiscard]] bool is_time();

  std::string name_;
  Seconds patience_{standard_error().is_terminal ? 1 : 30};
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  ProgressLine line_;
};

// Warns on standard error about everything that makes the figures incomplete.
void warn_of(const TraceFile& file, const trace::Reader& reader, const trace::Noticed& noticed);

}  // namespace headroom::cli
