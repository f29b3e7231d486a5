// `headroom trace snapshot`, `chrome` and `report`: a trace in the forms of common viewers.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/cli/core/interruptible_input.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/page/page.h"
#include "headroom/trace/export.h"
#include "headroom/trace/input.h"
#include "headroom/trace/what_if.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;

struct TraceExportOptions {
  TraceFile file;
  CardChoice card;
  std::optional<std::string> allocator;
  std::string out;
};

// The file to write. For standard output that is a temporary file, printed when it is complete.
class Target {
 public:
  explicit Target(const std::string& out) : path_(out) {
    if (out != "-") return;
    std::string name = (fs::temp_directory_path() / "headroom-XXXXXX").string();
    const int made = ::mkstemp(name.data());
    if (made < 0) throw WriteError("trace", "cannot write " + name + ": " + std::strerror(errno));
    ::close(made);
    path_ = temporary_ = name;
  }
  ~Target() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove(temporary_, ignored);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  void print_if_wanted() const {
    if (temporary_.empty()) return;
    trace::Input file = trace::Input::file(temporary_);
    for (std::string_view piece; !(piece = file.peek(kPiece)).empty(); file.skip(piece.size()))
      print(piece);
  }

 private:
  fs::path path_, temporary_;
};

struct Viewer {
  trace::Exported (*write)(const fs::path&, trace::Reader&, const trace::ReplayOptions&);
  const char* entries;  // plural noun for the written items
  const char* next;     // the user's next step
};

std::string done_text(const TraceExportOptions& options, const trace::Exported& exported,
                      const Viewer& viewer) {
  return fmt::format(
      "{}: {} {} of {} ({}); {}\n", options.out, exported.written, viewer.entries,
      counted(static_cast<long long>(exported.replay.noticed.events), "event"),
      trace::settings_text(exported.replay.card),
      exported.replay.card.refused.empty()
          ? std::string("nothing refused")
          : counted(static_cast<long long>(exported.replay.card.refused.size()), "request") +
                " refused");
}

ExitCode make(const TraceExportOptions& options, const Viewer& viewer, const Interrupt& interrupt,
              const InterruptibleInput* input) {
  trace::ReplayOptions replay;
  replay.setup = options.card.setup();
  replay.setup.settings = options.allocator;
  replay.operations.name = options.file.name();
  replay.operations.device = options.file.device_number();
  replay.cancel = input != nullptr ? input->token() : interrupt.token();
  TraceProgress progress(options.file.name());
  replay.progress = [&](const trace::Reader& at) { progress.show(at); };
  const auto reader = trace::open_trace(options.file.path);
  const Target target(options.out);
  const trace::Exported exported = viewer.write(target.path(), *reader, replay);
  progress.clear();
  if (input != nullptr) input->check();
  if (exported.stopped) return interrupt.exit_code();
  warn_of(options.file, *reader, exported.replay.noticed);
  target.print_if_wanted();
  if (options.out != "-")
    print(done_text(options, exported, viewer) +
          fmt::format("\n {} {}\n", standard_output().bullet(), viewer.next));
  return kOk;
}

// Makes a named pipe, as from <(zcat x.gz), the standard input. Opens it while Ctrl-C still ends
// the program, because open() may block for ever.
void take_as_standard_input(std::string& path) {
  std::error_code error;
  if (path == "-" || !fs::is_fifo(path, error)) return;
  const int pipe = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (pipe < 0) return;  // the next open() reports why
  ::dup2(pipe, STDIN_FILENO);
  ::close(pipe);
  path = "-";
}

ExitCode run_trace_export(TraceExportOptions options, const Viewer& viewer) {
  if (options.out != "-") check_outputs("trace", {options.out}, {options.file.path});
  take_as_standard_input(options.file.path);
  const Interrupt interrupt;
  std::optional<InterruptibleInput> input;
  if (options.file.path == "-") input.emplace(interrupt.token());
  try {
    return make(options, viewer, interrupt, input ? &*input : nullptr);
  } catch (const InputError&) {
    if (input) input->check();  // the reason why the input ends early
    if (!interrupt.happened()) throw;
    return interrupt.exit_code();  // it ends early because of the signal
  }
}

ExitCode run_snapshot(const TraceExportOptions& options) {
  return run_trace_export(options, {&trace::export_snapshot, "entries",
                                    "drop the file on https://pytorch.org/memory_viz"});
}

ExitCode run_chrome(const TraceExportOptions& options) {
  return run_trace_export(
      options, {&trace::export_chrome, "samples", "open the file in https://ui.perfetto.dev"});
}

ExitCode run_report(const TraceExportOptions& options) {
  const auto write = [](const fs::path& path, trace::Reader& reader,
                        const trace::ReplayOptions& replay) {
    return page::export_page(path, reader, replay, {.title = replay.operations.name});
  };
  return run_trace_export(options, {write, "tensors", "open the file in a browser"});
}

void add_options(const std::pair<CLI::App*, TraceExportOptions*>& added) {
  const auto [command, options] = added;
  options->file.add_to(command);
  command->add_option("--out", options->out, "The file to write; - is standard output")->required();
  command->add_option("--allocator", options->allocator,
                      "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF (default: as recorded)");
  options->card.add_to(command);
}

}  // namespace

void add_trace_export(Registry& registry, CLI::App* group) {
  add_options(registry.add(
      &run_snapshot, "snapshot", "Convert a trace to a snapshot for pytorch.org/memory_viz",
      "  headroom trace snapshot run.hrtrace --out run.pickle\n"
      "  headroom trace snapshot old.pickle --out new.pickle \\\n"
      "    --allocator expandable_segments:True --capacity 24GiB\n\n"
      "The allocator model replays the trace: segments and addresses are the model's.",
      group));
  add_options(registry.add(
      &run_chrome, "chrome", "Convert a trace for ui.perfetto.dev and chrome://tracing",
      "  headroom trace chrome run.hrtrace --out run.json\n"
      "  headroom trace chrome snapshot.pickle --out - | gzip > run.json.gz\n\n"
      "The allocator model replays the trace: the tracks show what the model reserved and\n"
      "allocated. Long tracks are thinned; their peaks stay.",
      group));
  add_options(registry.add(
      &run_report, "report", "Write a page that shows memory over time, for a browser",
      "  headroom trace report run.hrtrace --out report.html\n"
      "  headroom trace report snapshot.pickle --out report.html --device 1\n"
      "  headroom trace report run.hrtrace --out report.html --capacity 24GiB\n\n"
      "The page needs no network. It shows memory by category, module, operator or line, the\n"
      "largest tensors, and the allocator's segments at the peak. Without --capacity the trace\n"
      "is replayed on the card that it names; if it did not fit there, that card is a line.",
      group));
}

}  // namespace headroom::cli
