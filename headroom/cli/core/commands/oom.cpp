// `headroom oom classify`: decides if a program's output reports an out-of-memory.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/interruptible_input.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/oom/classify.h"
#include "headroom/oom/forensics.h"

namespace headroom::cli {
namespace {

struct OomOptions {
  std::string file, exit_code, signal;
  bool json = false;
};

// Keeps the beginning and the end of an input of any size: the beginning may show the cause, the
// end the last messages.
class Ends {
 public:
  void add(std::string_view piece) {
    const std::size_t to_head = std::min(piece.size(), kHead - head_.size());
    head_ += piece.substr(0, to_head);
    tail_ += piece.substr(to_head);
    if (tail_.size() <= 2 * kTail) return;
    tail_.erase(0, tail_.size() - kTail);
    cut_ = true;
  }

  [[nodiscard]] std::string text() && {
    if (cut_) head_ += "\n";
    if (cut_ && tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
    return std::move(head_) + tail_;
  }

 private:
  static constexpr std::size_t kHead = std::size_t{1} << 20, kTail = std::size_t{2} << 20;
  std::string head_, tail_;
  bool cut_ = false;
};

std::string read_ends(int file, const std::string& name) {
  Ends ends;
  std::array<char, 65536> piece{};
  while (true) {
    const ssize_t size = ::read(file, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0)
      throw InputError("[oom classify] cannot read " + name + ": " + std::strerror(errno));
    if (size == 0) break;
    ends.add({piece.data(), static_cast<std::size_t>(size)});
  }
  return std::move(ends).text();
}

std::string read_file_ends(const std::string& name) {
  const Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open())
    throw InputError("[oom classify] cannot read " + name + ": " + std::strerror(errno));
  return read_ends(file.get(), name);
}

std::string amount(const std::optional<Bytes>& bytes) {
  return bytes ? to_string(*bytes) : "unknown";
}

// By oom::Verdict.
constexpr const char* kSentences[] = {"out of the card's memory", "out of the host's memory",
                                      "not an out-of-memory", "not enough evidence"};

// The whole text in a pipe, for searching; one row on a terminal.
std::string evidence_text(const oom::Judgement& judgement) {
  const Terminal terminal = standard_output();
  if (!terminal.is_terminal) return judgement.evidence;
  const auto width = static_cast<std::size_t>(std::max(terminal.width, 40)) - 12;
  return fitted(judgement.evidence, width, terminal);
}

std::string view(const oom::Judgement& judgement) {
  std::string text =
      fmt::format("{}: {} ({:.0f} % sure)\n", to_string(judgement.verdict),
                  kSentences[static_cast<int>(judgement.verdict)], judgement.confidence * 100);
  if (!judgement.kind.empty()) text += "  kind      " + judgement.kind + "\n";
  if (!judgement.evidence.empty()) text += "  evidence  " + evidence_text(judgement) + "\n";
  if (judgement.asked || judgement.total || judgement.free)
    text += fmt::format("  requested {}; free {}, total {}\n", amount(judgement.asked),
                        amount(judgement.free), amount(judgement.total));
  if (judgement.device) text += fmt::format("  device    {}\n", *judgement.device);
  return text;
}

std::optional<int> number_from(const std::string& option, const std::string& text, long long least,
                               long long most) {
  if (text.empty()) return {};
  const auto number = to_integer(text);
  if (!number || *number < least || *number > most)
    throw UsageError(expectation(option, fmt::format("a number from {} to {}", least, most), text));
  return static_cast<int>(*number);
}

ExitCode run_oom(const OomOptions& options) {
  oom::Ending ending;
  // Windows exit codes have 32 bits (0xc0000005 is 3221225477); they name no Unix signal.
  ending.exit_code = number_from("--exit-code", options.exit_code, -255, 4294967295LL);
  ending.signal = number_from("--signal", options.signal, 1, 64);
  if (options.file.empty() && ::isatty(STDIN_FILENO) != 0)
    print_error("headroom oom classify: reads a program's output; end with Ctrl-D\n");
  const Interrupt interrupt;
  std::string text;
  if (options.file.empty()) {
    const InterruptibleInput input(interrupt.token());
    text = read_ends(STDIN_FILENO, "standard input");
    input.check();
  } else {
    text = read_file_ends(options.file);
  }
  if (interrupt.happened()) return interrupt.exit_code();
  ending.text = text;
  const oom::Judgement judgement = oom::classify(ending);
  print(options.json ? to_line(oom::document(judgement)) + "\n" : view(judgement));
  return kOk;
}

}  // namespace

void add_oom(Registry& registry) {
  CLI::App* group = registry.add("oom", "Tell an out-of-memory from other failures",
                                 "  headroom oom classify train.log");
  group->require_subcommand(1);
  auto [command, options] = registry.add(
      &run_oom, "classify", "Judge from a program's output whether it ran out of memory",
      "  headroom oom classify train.log\n"
      "  python train.py 2>&1 | tee train.log; headroom oom classify train.log\n"
      "  headroom oom classify --exit-code 137 --json < train.log\n\n"
      "The verdict is gpu_oom, host_oom, not_oom, or unknown if the output proves none of them.\n"
      "Below a certainty of 80 %, check the evidence yourself. Exit: 0 with any verdict.",
      group);
  command->add_option("file", options->file, "The program's output (default: standard input)");
  command->add_option("--exit-code", options->exit_code,
                      "The program's exit code: 0 to 255, minus a signal, or a Windows code");
  command->add_option("--signal", options->signal, "The signal that ended the program: 1 to 64");
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
