#include "headroom/gpu/simulated.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/profile.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

// The place that errors name: simulate(), dry_run(), --gpus and others all parse a spec.
constexpr std::string_view kSim = "sim";

[[noreturn]] void refuse(std::string_view what, const std::string& to_try = "sim:24GiB") {
  throw UsageError(expectation(kSim, "simulated cards such as 24GiB, 2xRTX4090 or 1x24GiB,1x80GiB",
                               what, to_try));
}

SimulatedCard parse_card(std::string_view text) {
  // The catalogue comes first: "4090" is a card, not 4 KiB.
  if (!cards_called(text).empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) {
    const CatalogueCard& known = card_named(text, kSim);
    return {.name = known.name,
            .total = known.total,
            .reserved = known.total - known.cuda_total.value_or(known.total),
            .profile = known.profile};
  }
  const Bytes total = parse_bytes(text);
  return {.name = "Simulated GPU " + headroom::to_string(total),
          .total = total,
          .reserved = {},
          .profile = {}};
}

// "8x24GiB": eight cards of 24 GiB. A name may contain an x ("A100-SXM4"), a count may not.
std::pair<long long, std::string_view> split_count(std::string_view text) {
  const std::size_t x = text.find_first_of("xX*");
  if (x == std::string_view::npos || x == 0) return {1, text};
  const auto count = to_integer(text.substr(0, x));
  if (!count) return {1, text};
  return {*count, trim(text.substr(x + 1))};
}

void check_box_name(std::string_view name) {
  const bool fine = !name.empty() && name.size() <= 64 && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                    });
  if (!fine)
    throw UsageError(expectation(kSim, "a box name of letters, digits, '-', '_' and '.' after '@'",
                                 name, "sim:8x24GiB@lab"));
}

// "GPU-73696d00-...": "sim" and the card's index in the first bytes, then a hash of the box's name,
// so that the same card of the same box has the same UUID in every process.
Uuid uuid_of(const SimulatedBox& box, std::size_t card) {
  Uuid uuid;
  uuid.bytes = {'s', 'i', 'm', static_cast<std::uint8_t>(card)};
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a, the same on every machine
  for (const unsigned char c : box.name) hash = (hash ^ c) * 0x100000001b3ULL;
  if (box.name.empty()) hash = 0;
  for (std::size_t i = 0; i < 8; ++i)
    uuid.bytes[4 + i] = static_cast<std::uint8_t>(hash >> (8 * i));
  return uuid;
}

class SimulatedSource : public CardSource {
 public:
  SimulatedSource(SimulatedBox box, ProcessTable processes)
      : box_(std::move(box)), process_table_(std::move(processes)) {}

  Machine open() override {
    if (!box_.name.empty()) (void)read_shares(box_);  // refuse a wrong box before any other step
    Machine machine;
    machine.simulated = true;
    for (std::size_t i = 0; i < box_.cards.size(); ++i) {
      Card card;
      card.index = static_cast<int>(i);
      card.uuid = uuid_of(box_, i);
      card.name = box_.cards[i].name;
      card.simulated = true;
      machine.cards.push_back(std::move(card));
    }
    return machine;
  }

  void read_gauges(Card& card) override {
    const SimulatedCard& spec = box_.cards.at(static_cast<std::size_t>(card.index));
    const auto shares = living_shares(card);
    card.memory.reset();
    if (!shares) return;
    Bytes used{0};
    for (const BoxShare& share : *shares) used += share.used;
    used = std::min(used, spec.total - spec.reserved);
    card.memory = CardMemory{.total = spec.total,
                             .used = used,
                             .free = spec.total - spec.reserved - used,
                             .reserved = spec.reserved};
  }

  void read_processes(Card& card) override {
    const auto shares = living_shares(card);
    card.processes.reset();
    if (!shares) return;
    std::vector<GpuProcess> processes;
    for (const BoxShare& share : *shares) {
      GpuProcess process;
      process.pid = share.process.pid;
      process.start_ticks = share.process.start_ticks;
      process.used = share.used;
      const auto stat = process_table_.stat(share.process.pid);
      if (const auto facts = stat ? process_table_.facts(*stat) : std::nullopt) {
        process.user = facts->user;
        process.command = facts->command;
        process.started = facts->started;
      }
      processes.push_back(std::move(process));
    }
    card.processes = std::move(processes);
  }

  void read_activity(Card&) override {}  // a simulated card has no activity to measure

 private:
  // A file that became unreadable after open() makes the card's figures unknown; it does not throw.
  std::optional<std::vector<BoxShare>> living_shares(Card& card) {
    card.trouble.clear();
    if (box_.name.empty()) return std::vector<BoxShare>{};
    try {
      std::vector<BoxShare> shares = read_shares(box_);
      std::erase_if(shares, [&](const BoxShare& share) {
        return share.card != card.index || !process_table_.alive(share.process);
      });
      return shares;
    } catch (const Error& error) {
      card.trouble = error.what();
      return {};
    }
  }

  const SimulatedBox box_;
  const ProcessTable process_table_;
};

}  // namespace

Bytes usable(const SimulatedCard& card) {
  return card.total - card.reserved;
}

Bytes room_of(const SimulatedCard& card) {
  const DeviceProfile* profile = find_profile(card.profile);
  const Bytes context = profile != nullptr ? profile->context.value_or(Bytes{}) : Bytes{};
  return usable(card) - context;
}

SimulatedBox parse_simulated(std::string_view spec) {
  std::string_view text = trim(spec);
  if (lower(text.substr(0, 4)) == "sim:") text.remove_prefix(4);
  SimulatedBox box;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    box.name = text.substr(at + 1);
    text = text.substr(0, at);
    check_box_name(box.name);
  }
  if (trim(text).empty()) refuse(spec);
  for (const std::string_view part : split(text, ',')) {
    const auto [count, what] = split_count(trim(part));
    if (count < 1 || what.empty()) refuse(spec);
    const SimulatedCard card = parse_card(what);
    if (card.total < 1_MiB)  // "1x4" forgets the unit
      refuse(part, to_integer(what)
                       ? "sim:" + std::to_string(count) + "x" + std::string(what) + "GiB"
                       : "sim:24GiB");
    const int most = box.name.empty() ? kMostCards : kMostSimulatedCards;
    if (count > most || std::ssize(box.cards) + count > most)
      throw UsageError(expectation(kSim,
                                   "at most " + std::to_string(most) + " simulated cards" +
                                       (box.name.empty() ? "" : " in a box with a name"),
                                   spec));
    box.cards.insert(box.cards.end(), static_cast<std::size_t>(count), card);
  }
  return box;
}

std::string box_path(const SimulatedBox& box) {
  return (state_dir() / "boxes" / (box.name + ".json")).string();
}

std::vector<BoxShare> read_shares(const SimulatedBox& box) {
  const std::string path = box_path(box);
  const auto text = read_file(path);
  if (!text) return {};  // the box is unused so far
  const Json file = parse_json(*text, path);
  try {
    std::vector<Bytes> totals;
    for (const Json& card : file.at("cards"))
      totals.emplace_back(card.at("total_bytes").get<std::int64_t>());
    const bool same =
        std::equal(totals.begin(), totals.end(), box.cards.begin(), box.cards.end(),
                   [](Bytes total, const SimulatedCard& card) { return total == card.total; });
    if (!same)
      throw UsageError("sim",
                       "the box '" + box.name + "' exists with other cards (" + path +
                           "); use another name, or remove that file when no process uses it");
    std::vector<BoxShare> shares;
    for (const Json& share : file.at("shares")) {
      shares.push_back(
          {.process = {share.at("pid").get<pid_t>(), share.at("start_ticks").get<long long>()},
           .card = share.at("card").get<int>(),
           .used = bytes_from(share.at("used_bytes"))});
    }
    return shares;
  } catch (const Json::exception& error) {
    throw InputError("sim", path + " is not a simulated box: " + error.what());
  }
}

std::unique_ptr<CardSource> make_simulated_source(SimulatedBox box, ProcessTable processes) {
  return std::make_unique<SimulatedSource>(std::move(box), std::move(processes));
}

}  // namespace headroom::gpu
