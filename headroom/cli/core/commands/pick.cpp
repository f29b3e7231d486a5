// `headroom pick`: prints the cards that have enough usable memory, now or as soon as they have.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/base/amount.h"
#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/json.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/recent_ends.h"
#include "headroom/gpu/wait.h"
#include "headroom/lease/ledger.h"
#include "headroom/lease/outer_lease.h"
#include "headroom/machine/look.h"

namespace headroom::cli {
namespace {

struct PickOptions {
  std::string gpus, need, order = "most-free", ids = "index", timeout = "60m", interval = "30s";
  int count = 1;
  bool wait = false;
  bool json = false;
};

gpu::DeviceRequest request_from(const PickOptions& options) {
  gpu::DeviceRequest request;
  request.need = parse_amount(options.need, "--need");
  request.count = options.count;
  request.order = gpu::parse_order(options.order);
  if (options.count < 1)
    throw UsageError(
        expectation("--count", "a number of cards, at least 1", std::to_string(options.count)));
  if (options.ids != "index" && options.ids != "uuid")
    throw UsageError(expectation("--ids", "index or uuid", options.ids));
  return request;
}

// A MIG slice has no number that CUDA accepts.
std::string name_of(const gpu::Card& card, const PickOptions& options) {
  return options.ids == "uuid" || card.slice ? to_string(card.uuid) : std::to_string(card.index);
}

Json document(const gpu::WaitResult& result, const gpu::DeviceRequest& request) {
  const gpu::Selection& selection = result.selection;
  Json json{{"schema", 1}, {"picked", Json::array()}, {"need_bytes", request.need.count}};
  for (const auto& pick : selection.picked)
    json["picked"].push_back({{"index", pick.card.index},
                              {"uuid", to_string(pick.card.uuid)},
                              {"usable_bytes", pick.usable.count}});
  const bool done = !selection.picked.empty();
  json["shortfall_bytes"] = done ? Json(0) : or_null(selection.shortfall);
  json["holders"] = Json::array();
  for (const gpu::Holder& holder : selection.holders) {
    const auto& p = holder.process;
    json["holders"].push_back({{"uuid", to_string(holder.card)},
                               {"pid", or_null(p.pid)},
                               {"user", or_null(p.user)},
                               {"command", or_null(p.command)},
                               {"used_bytes", or_null(p.used)}});
  }
  json["unlisted_bytes"] = or_null(selection.unlisted);
  json["waited_s"] = result.waited.count();
  return json;
}

// "waiting 12 s of 60 m: need 10.00 GiB; best is GPU 2 with 7.00 GiB usable, short by ..., held by
// ..."
std::string progress_text(const gpu::WaitProgress& progress) {
  return "waiting " + duration_text(progress.elapsed) + " of " + duration_text(progress.timeout) +
         ": " + progress.selection.sentence;
}

std::string picked_text(const gpu::Selection& selection, const PickOptions& options) {
  std::string text;
  for (const auto& pick : selection.picked)
    text += (text.empty() ? "" : ",") + name_of(pick.card, options);
  return text + "\n";
}

ExitCode run_pick(const PickOptions& options) {
  const gpu::DeviceRequest request = request_from(options);
  const gpu::Devices devices = gpu::devices_from(options.gpus);
  if (devices.kind == gpu::Devices::Kind::cpu)
    throw UsageError(expectation("--gpus", "GPUs to pick from", "cpu", "--gpus all"));
  gpu::WaitOptions wait;
  const Seconds timeout = parse_duration(options.timeout);
  if (options.wait) wait.timeout = timeout;
  wait.interval = parse_duration(options.interval);
  if (wait.interval < Seconds(0.05))
    throw UsageError(expectation("--interval", "at least 50ms: the driver serialises its callers",
                                 options.interval, "1s"));
  const auto environment = gpu::CudaEnvironment::current();
  const auto outer = lease::OuterLease::find(lease::contents_now());
  wait.narrow = [&](gpu::Machine machine) {
    const bool inside = outer && outer->concerns(machine);
    machine = narrowed(std::move(machine), devices, environment);
    if (!inside) return lease::with_promises(std::move(machine), lease::contents_now());
    outer->require(request, machine);
    return outer->within(std::move(machine), lease::contents_now());
  };
  wait.recent_ends = [](const gpu::Machine& machine) { return gpu::note_processes(machine); };

  const Interrupt interrupt;  // before the sampler's thread
  wait.cancel = interrupt.token();
  ProgressLine line(wait.interval.count());
  wait.progress = [&](const gpu::WaitProgress& progress) { line.show(progress_text(progress)); };
  gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
  const gpu::WaitResult result = wait_for_gpu(sampler, request, wait);
  line.clear();

  if (interrupt.happened()) return interrupt.exit_code();
  if (options.json) print(to_line(document(result, request)) + "\n");
  const gpu::Selection& selection = result.selection;
  if (!selection.picked.empty()) {
    if (!options.json) print(picked_text(selection, options));
    return kOk;
  }
  print_error("headroom pick: " + selection.sentence + "\n");
  const gpu::Machine whole = sampler.snapshot();
  const gpu::Machine machine = wait.narrow(whole);
  if (!machine.cards.empty() || machine.silent) return kBusy;
  // Waiting does not help if there is no card, or if CUDA_VISIBLE_DEVICES hides them all.
  if (!whole.cards.empty())
    print_error("headroom pick: " + cuda_view(whole, environment).why_empty + "\n");
  return kUnavailable;
}

}  // namespace

void add_pick(Registry& registry) {
  auto [command, options] = registry.add(
      &run_pick, "pick", "Print the GPUs that have enough usable memory",
      "  headroom pick --need 10GiB\n"
      "  gpu=$(headroom pick --need 10GiB --ids uuid) && export CUDA_VISIBLE_DEVICES=$gpu\n"
      "  headroom pick --need 20GiB --count 2 --wait --timeout 2h\n"
      "  headroom pick --need 10GiB --order least-loaded --ids uuid\n\n"
      "Numbers are the driver's (nvidia-smi's); CUDA counts the same way with\n"
      "CUDA_DEVICE_ORDER=PCI_BUS_ID. pick reserves nothing: two callers may get the same answer.\n"
      "Inside `headroom run`, it picks from the cards of that run's lease.\n"
      "Exit: 0 printed, 75 too little usable memory (in time), 69 no GPU.");
  add_gpus_option(command, options->gpus);
  command->add_option("--need", options->need, "Memory needed on each card: 512MiB, 10GiB, 24GB")
      ->required();
  command->add_option("--count", options->count, "Number of cards")->capture_default_str();
  command
      ->add_option("--order", options->order,
                   "Order of preference: most-free, least-loaded or index")
      ->capture_default_str();
  command
      ->add_option("--ids", options->ids, "What to print: index or uuid (MIG slices: always uuid)")
      ->capture_default_str();
  auto* wait = command->add_flag("--wait", options->wait, "Wait until enough memory is usable");
  command
      ->add_option("--timeout", options->timeout,
                   "Longest wait: 90s, 10m; a plain number is seconds")
      ->capture_default_str()
      ->needs(wait);
  command
      ->add_option("--interval", options->interval, "How often to look at the cards while waiting")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
