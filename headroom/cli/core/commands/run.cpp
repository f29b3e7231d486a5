// `headroom run`: runs any command on reserved cards, and tries again with less memory after an
// out-of-memory and after no other failure.
#include <nlohmann/json.hpp>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/amount.h"
#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/command_behind.h"
#include "headroom/cli/core/complaint.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/edit/knobs.h"
#include "headroom/job/detached.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/rehearse/rehearsal.h"
#include "headroom/rehearse/spill_run.h"
#include "headroom/supervise/checkpoints.h"
#include "headroom/supervise/run_history.h"
#include "headroom/supervise/supervisor.h"

namespace headroom::cli {
namespace {

struct RunOptions {
  CLI::App* app = nullptr;  // has the command to run if it comes without "--"
  const std::vector<std::string>* behind_dashes = nullptr;
  std::string gpus, need, order = "most-free", ids = "index", timeout = "60m", interval = "1s";
  std::string more = "0s";
  std::string resume_arg, checkpoints, stall, history;
  std::vector<std::string> maps;
  std::optional<int> count;
  long long min_batch = 1;
  int max_retries = 10;
  bool let_batch_change = false;
  bool end_stalled = false;
  bool forget = false;
  bool rehearse = false;
  bool spill = false;
  std::string host_memory;
  bool detached = false;
  bool json = false;
};

template <typename Number>
void at_least(const char* option, Number value, Number least) {
  if (value < least)
    throw UsageError(
        expectation(option, "a number, at least " + std::to_string(least), std::to_string(value)));
}

Seconds positive(const char* option, const std::string& text) {
  const Seconds duration = parse_duration(text);
  if (duration <= Seconds(0)) throw UsageError(expectation(option, "more than 0", text, "1s"));
  return duration;
}

supervise::Orders orders_from(const RunOptions& options) {
  at_least("--count", options.count.value_or(1), 1);
  at_least("--min-batch", options.min_batch, 1LL);
  if (options.min_batch > edit::kMostBatch)
    throw UsageError(expectation("--min-batch", "at most " + std::to_string(edit::kMostBatch),
                                 std::to_string(options.min_batch)));
  at_least("--max-retries", options.max_retries, 0);
  if (options.ids != "index" && options.ids != "uuid")
    throw UsageError(expectation("--ids", "index or uuid", options.ids));
  if (options.resume_arg.empty() != options.checkpoints.empty())
    throw UsageError(expectation("run", "--resume-arg and --checkpoints together", "one of them",
                                 R"(--resume-arg "--resume {}" --checkpoints "out/*.pt")"));
  if (options.rehearse && !options.need.empty())
    throw UsageError(expectation("run", "--need or --rehearse", "both"));
  if (!options.host_memory.empty() && !options.spill)
    throw UsageError("--host-memory is for what --spill moves; try --spill");
  if (options.end_stalled && options.stall.empty())
    throw UsageError("--end-stalled needs --stall; try --stall 10m");
  if (!options.resume_arg.empty()) (void)supervise::resume_arguments(options.resume_arg, "x");
  supervise::Orders orders;
  orders.command = command_behind(*options.app, *options.behind_dashes,
                                  "headroom run --need 10GiB -- python train.py");
  orders.devices = gpu::devices_from(options.gpus);
  if (orders.devices.kind == gpu::Devices::Kind::simulated &&
      !lower(orders.devices.text).starts_with("sim:"))
    throw UsageError(expectation("--gpus", "cards to run on", orders.devices.text,
                                 "--gpus all, or sim:... to simulate some"));
  if (!options.need.empty()) orders.need = parse_amount(options.need, "--need");
  orders.count = options.count;
  orders.order = gpu::parse_order(options.order);
  orders.by_uuid = options.ids == "uuid";
  orders.wait_timeout = parse_duration(options.timeout);
  orders.wait_interval = positive("--interval", options.interval);
  orders.wait_for_more = parse_duration(options.more);
  orders.maps = options.maps;
  orders.min_batch = options.min_batch;
  orders.keep_effective_batch = !options.let_batch_change;
  orders.resume_arguments = options.resume_arg;
  orders.checkpoints = options.checkpoints;
  orders.max_retries = options.max_retries;
  if (!options.stall.empty()) orders.stall = positive("--stall", options.stall);
  orders.end_stalled = options.end_stalled;
  orders.history = options.history;
  orders.remember = !options.forget;
  orders.output_to_error = options.json;
  return orders;
}

Json document(const std::vector<rehearse::SpilledProcess>& spilled) {
  Json all = Json::array();
  for (const rehearse::SpilledProcess& one : spilled)
    all.push_back({{"rank", one.rank ? Json(*one.rank) : Json()},
                   {"refused", one.refused},
                   {"rescued", one.rescued},
                   {"moved_bytes", one.moved.count},
                   {"peak_waiting_bytes", one.peak_waiting.count},
                   {"needed_bytes", one.needed.count},
                   {"peak_reserved_bytes", one.peak_reserved.count},
                   {"seconds", one.seconds}});
  return all;
}

Json document(const supervise::Report& report, ExitCode code) {
  Json tries = Json::array();
  for (const supervise::Try& one : report.tries)
    tries.push_back(parse_json(supervise::to_line(one), "a try"));
  const auto* last = report.tries.empty() ? nullptr : &report.tries.back();
  const auto value = [&](auto member) {
    return last != nullptr && last->*member ? Json(*(last->*member)) : Json();
  };
  return {{"schema", 1},
          {"exit_code", code},
          {"verdict", last != nullptr ? Json(to_string(last->judgement.verdict)) : Json()},
          {"batch", value(&supervise::Try::batch)},
          {"accumulation", value(&supervise::Try::accumulation)},
          {"waited_s", report.waited.count()},
          {"why", report.sentence.empty() ? Json() : Json(report.sentence)},
          {"out_of_memory", report.forensics ? oom::document(*report.forensics) : Json()},
          {"tries", std::move(tries)}};
}

ExitCode exit_code_of(const supervise::Report& report) {
  switch (report.outcome) {
    case supervise::Outcome::ended:
    case supervise::Outcome::cancelled:
      return report.exit_code;
    case supervise::Outcome::out_of_memory:
      return kOutOfMemory;
    case supervise::Outcome::busy:
      return kBusy;
    case supervise::Outcome::no_cards:
      return kUnavailable;
  }
  return kInternal;
}

// Reports options that have no effect on the CPU.
void tell_unused(const supervise::Orders& orders,
                 const std::function<void(const std::string&)>& say) {
  if (orders.devices.kind != gpu::Devices::Kind::cpu) return;
  std::vector<std::string> unused;
  if (orders.need) unused.emplace_back("--need");
  if (orders.count) unused.emplace_back("--count");
  if (orders.wait_for_more > Seconds(0)) unused.emplace_back("--wait-for-more");
  if (!unused.empty())
    say(join(unused, ", ") + " has no effect on the CPU, where no memory is reserved");
}

// The memory that the command needs on a card, by a rehearsal on simulated ones without a limit.
Bytes need_by_rehearsal(const RunOptions& options, const supervise::Orders& orders,
                        const std::function<void(const std::string&)>& say) {
  std::vector<gpu::SimulatedCard> cards =
      machine::cards_to_fill(options.gpus.empty() ? "all" : options.gpus);
  if (cards.empty())
    throw UnavailableError(expectation("--rehearse", "GPUs that the command would run on", "none"));
  for (gpu::SimulatedCard& card : cards) {
    card.total = allocator::kUnlimited;
    card.reserved = {};
  }
  say("rehearsing the command, to know how much memory it needs");
  const rehearse::Rehearsal rehearsal =
      rehearse::rehearse({.command = orders.command, .cards = cards, .output_to_error = true});
  if (rehearsal.cards.empty() || !rehearsal.is_whole())
    throw UnavailableError(expectation("--rehearse", "a command that can be rehearsed",
                                       "one that failed; its own output is above",
                                       "--need 10GiB, or headroom rehearse -- COMMAND"));
  Bytes most;
  for (const rehearse::RehearsedCard& one : rehearsal.cards)
    most = std::max(most, rehearsal.needs(one.index));
  say("the rehearsal needed " + to_string(most) + " of a card");
  return most;
}

// The command's environment with --spill; its processes write into the folder what moved.
std::vector<std::string> spilling(const RunOptions& options, const gpu::Devices& devices,
                                  const rehearse::Folder& folder) {
  rehearse::SpillOrders orders{.host_memory = {}, .cards = {}, .folder = folder.path()};
  if (!options.host_memory.empty())
    orders.host_memory = parse_amount(options.host_memory, "--host-memory");
  if (devices.kind == gpu::Devices::Kind::simulated)
    orders.cards = machine::cards_to_fill(devices.text);
  return rehearse::spill_environment(orders);
}

ExitCode run_here(const RunOptions& options, supervise::Orders orders) {
  const auto say = [](const std::string& text) { print_error("headroom run: " + text + "\n"); };
  tell_unused(orders, say);
  std::optional<rehearse::Folder> spilled;
  if (options.spill) {
    orders.environment = spilling(options, orders.devices, spilled.emplace());
    orders.remember = false;  // it needs less than it uses
  }
  if (options.rehearse) orders.need = need_by_rehearsal(options, orders, say);
  ProgressLine line(30);
  supervise::Listener listener;
  listener.say = [&](const std::string& text) {
    line.clear();
    say(text);
  };
  listener.waiting = [&](const gpu::WaitProgress& progress) {
    line.show("waiting " + duration_text(progress.elapsed) + " of " +
              duration_text(progress.timeout) + ": " + progress.selection.sentence);
  };
  listener.starting = [&] { line.clear(); };
  const supervise::Report report = supervise::supervise(orders, listener);
  line.clear();
  std::vector<rehearse::SpilledProcess> processes;
  if (spilled) processes = rehearse::spilled_processes(spilled->path());
  for (const rehearse::SpilledProcess& one : processes)
    say((one.rank ? "rank " + std::to_string(*one.rank) + ": " : "") + one.sentence);
  const ExitCode code = exit_code_of(report);
  const bool show_report = report.forensics && code != kOk;
  if (show_report) print_error(describe(*report.forensics));
  const bool is_in_report = show_report && !report.forensics->why_no_change.empty();
  if (!report.sentence.empty() && !is_in_report) say(report.sentence);
  if (options.json) {
    Json json = document(report, code);
    if (options.spill) json["spill"] = document(processes);
    print(to_line(json) + "\n");
  }
  return code;
}

ExitCode run_run(const RunOptions& options) {
  const supervise::Orders orders = orders_from(options);
  if (!options.detached) return run_here(options, orders);
  if (const auto job = job::detach(orders.command)) {
    const Json json{{"schema", 1}, {"job", job->id}, {"pid", job->supervisor.pid}};
    print((options.json ? to_line(json) : job->id) + "\n");
    return kOk;
  }
  const ExitCode code = complaining([&] { return run_here(options, orders); });
  job::note_end(code);
  return code;
}

}  // namespace

void add_run(Registry& registry) {
  auto [command, options] = registry.add(
      &run_run, "run",
      "Run a command on reserved GPU memory; after an out-of-memory, retry with a smaller batch",
      "  headroom run --need 10GiB -- python train.py\n"
      "  headroom run --map \"--batch-size=batch\" --map \"--accum=accumulation\" -- \\\n"
      "      python train.py --batch-size 64 --accum 1\n"
      "  headroom run --map config.yaml:training.batch_size=batch --map env:ACCUM=accumulation \\\n"
      "      --resume-arg \"--resume {}\" --checkpoints \"out/ckpt-*.pt\" -- python train.py\n"
      "  headroom run --count 4 --need 30GiB -- torchrun --nproc-per-node 4 train.py\n"
      "  headroom run --spill -- python train.py\n"
      "  headroom run --gpus cpu -- python train.py\n\n"
      "--map says where the command sets its batch: \"--flag=batch\", \"key=batch\" (an argument\n"
      "key=value), \"FILE:a.b=batch\" (YAML, JSON) or \"env:NAME=batch\"; =accumulation likewise.\n"
      "The effective batch (batch x accumulation) stays the same. Only an out-of-memory leads to\n"
      "another try; every other failure ends the run. A `headroom run` inside another one uses\n"
      "the lease of the outer one.\n"
      "Exit: the command's own code (128 + signal), 76 out of memory in the last try,\n"
      "75 too little usable memory in time, 69 no GPU, 64 wrong usage, 127 not found.");
  options->app = command;
  options->behind_dashes = &registry.behind_dashes;
  command->prefix_command();
  command->add_option("--gpus", options->gpus,
                      "GPUs to use: auto, all, numbers (0,2), UUIDs or sim:8x24GiB; cpu: none "
                      "(default: HEADROOM_GPUS, else auto)");
  command->add_option(
      "--need", options->need,
      "Memory to reserve on each card, such as 10GiB (default: what the command used "
      "when it last worked, else all of a card that is at least half usable)");
  command->add_flag("--rehearse", options->rehearse,
                    "Rehearse the command first (headroom rehearse), and reserve what it needed");
  command->add_flag(
      "--spill", options->spill,
      "Memory that bends: a request that a card refuses moves what the command's Python "
      "needs later to the host, and is made again. The results stay the same to the bit");
  command->add_option(
      "--host-memory", options->host_memory,
      "With --spill: how much may wait on the host (default: half of what is free)");
  command->add_option("--count", options->count,
                      "Number of cards (default: 1; inside another run, all of its cards)");
  command
      ->add_option("--order", options->order,
                   "Order of preference: most-free, least-loaded or index")
      ->capture_default_str();
  command
      ->add_option("--ids", options->ids, "How CUDA_VISIBLE_DEVICES names the cards: index or uuid")
      ->capture_default_str();
  command
      ->add_option("--timeout", options->timeout,
                   "Longest wait for the cards: 90s, 10m; a plain number is seconds")
      ->capture_default_str();
  command
      ->add_option("--interval", options->interval, "How often to look at the cards while waiting")
      ->capture_default_str();
  command
      ->add_option("--wait-for-more", options->more,
                   "Longest wait for a card with more memory, when no smaller batch is left to try")
      ->capture_default_str();
  command
      ->add_option(
          "--map", options->maps,
          "An argument, variable or value in a file that a new try may change: WHERE=batch "
          "or WHERE=accumulation; repeat it for each")
      ->allow_extra_args(false);
  command->add_option("--min-batch", options->min_batch, "Smallest batch to try")
      ->capture_default_str();
  command->add_flag("--let-batch-change", options->let_batch_change,
                    "Allow a smaller effective batch if no accumulation is mapped");
  command
      ->add_option("--max-retries", options->max_retries, "Largest number of tries after the first")
      ->capture_default_str();
  command->add_option("--resume-arg", options->resume_arg,
                      "Arguments to add to a new try; {} is the newest file of --checkpoints");
  command->add_option("--checkpoints", options->checkpoints,
                      "Glob pattern of the command's checkpoints");
  command->add_option("--stall", options->stall,
                      "Report a command that neither prints nor uses its cards for this long");
  command->add_flag("--end-stalled", options->end_stalled, "End a command that --stall reports");
  command->add_option("--history", options->history,
                      "File that gets a line of JSON for each try (default: in the state folder)");
  command->add_flag("--forget", options->forget,
                    "Ignore the remembered settings, and remember none of this run");
  command->add_flag("--detach", options->detached,
                    "Run in the background and print a job ID, for headroom attach");
  command->add_flag("--json", options->json,
                    "Print one JSON document; the command's own output goes to standard error");
}

}  // namespace headroom::cli
