// `headroom trace`: the command group, and the code its commands share.
#include "headroom/cli/core/commands/trace.h"

#include <fmt/format.h>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::cli {
namespace {

// A size, or a card of the catalogue, which stands for the total that CUDA reports.
Bytes capacity_from(const std::string& text) {
  if (text == "unlimited") return allocator::kUnlimited;
  try {
    return parse_bytes(text);
  } catch (const UsageError&) {
    const auto& card = gpu::card_named(text, "--capacity", "a size or a card of `headroom cards`");
    return card.cuda_total.value_or(card.total);
  }
}

allocator::AddressPolicy policy_from(const std::string& text) {
  if (text == "ascending") return allocator::AddressPolicy::ascending;
  if (text == "descending") return allocator::AddressPolicy::descending;
  if (text == "lowest") return allocator::AddressPolicy::lowest;
  throw UsageError(expectation("--addresses", "ascending, descending or lowest", text));
}

}  // namespace

void TraceFile::add_to(CLI::App* command) {
  command
      ->add_option(
          "FILE", path,
          "A Headroom trace, a PyTorch snapshot pickle, or plain events; - is standard input")
      ->required();
  command->add_option("--device", device, "Device to read (default: the first that appears)")
      ->check(CLI::Range(0, 65535));
}

std::optional<std::uint16_t> TraceFile::device_number() const {
  if (device < 0) return {};
  return static_cast<std::uint16_t>(device);
}

void CardChoice::add_to(CLI::App* command) {
  command
      ->add_option("--capacity", capacity,
                   "Memory of the card: 24GiB, or a card's name (\"RTX 4090\")")
      ->capture_default_str();
  command->add_option("--fraction", fraction, "As torch.cuda.set_per_process_memory_fraction: 0.8");
  command->add_flag("--hold-events", hold_events,
                    "Work of other streams ends at the y events of the file, not at once");
  command
      ->add_option("--addresses", addresses,
                   "Order of the driver's addresses: ascending, descending or lowest")
      ->capture_default_str();
  command->add_option("--torch", torch,
                      "PyTorch whose allocator to follow, 2.11 to 2.15 (default: as recorded, "
                      "else the one that headroom was built with)");
}

trace::CardSetup CardChoice::setup() const {
  trace::CardSetup setup;
  setup.capacity = capacity_from(capacity);
  setup.fraction = fraction;
  setup.hold_events = hold_events;
  setup.addresses = policy_from(addresses);
  if (!torch.empty()) setup.version = allocator::version_named(torch);
  return setup;
}

bool TraceProgress::is_time() {
  const auto now = Clock::now();
  if (now - begin_ < patience_ || now - shown_ < Seconds(0.1)) return false;
  shown_ = now;
  return true;
}

void TraceProgress::show_search(int tried) {
  if (is_time()) line_.show("searching the smallest card: " + counted(tried, "card") + " tried");
}

void TraceProgress::show(const trace::Reader& reader) {
  if (!is_time()) return;
  const auto size = reader.size();
  const Bytes position{static_cast<std::int64_t>(reader.position())};
  line_.show("reading " + name_ + ": " +
             (size && *size > 0
                  ? fmt::format("{:.0f} %", 100 * static_cast<double>(position.count) /
                                                static_cast<double>(*size))
                  : to_string(position)));
}

void warn_of(const TraceFile& file, const trace::Reader& reader, const trace::Noticed& noticed) {
  const auto warn = [](const std::string& text) { print_error("headroom trace: " + text + "\n"); };
  const std::string name = file.name();
  if (noticed.events == 0) warn("there are no events in " + name);
  if (noticed.devices.size() > 1 && file.device < 0)
    warn(fmt::format("{} has events of {} devices; these are of device {} (--device)", name,
                     noticed.devices.size(), noticed.device.value_or(0)));
  if (noticed.unknown_frees > 0)
    warn(counted(static_cast<long long>(noticed.unknown_frees), "free") +
         " of memory allocated before the recording of " + name +
         " began: no figure includes that memory");
  if (noticed.missing_frees > 0)
    warn(counted(static_cast<long long>(noticed.missing_frees), "free") + " missing in " + name +
         ": assumed just before the next allocation at the same address");
  if (reader.cut_off() > 0)
    warn(name + " ends within a part: its last " + std::to_string(reader.cut_off()) +
         " bytes are ignored");
}

void add_trace(Registry& registry) {
  CLI::App* group = registry.add("trace", "Replay, compare and inspect traces of GPU memory",
                                 "  headroom trace replay run.hrtrace --capacity 24GiB\n"
                                 "  headroom trace replay snapshot.pickle --compare\n"
                                 "  headroom trace top snapshot.pickle\n"
                                 "  headroom trace report snapshot.pickle --out report.html\n"
                                 "  headroom trace diff before.hrtrace after.hrtrace");
  group->require_subcommand(1);
  add_trace_replay(registry, group);
  add_trace_export(registry, group);
  add_trace_top(registry, group);
  add_trace_diff(registry, group);
}

}  // namespace headroom::cli
