#include "headroom/gpu/devices.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/nvml.h"

namespace headroom::gpu {
namespace {

constexpr std::string_view kForms =
    "auto, all, cpu, numbers (0,2), UUIDs (GPU-8932f937,...), sim:8x24GiB or a card's name";

bool is_uuid(std::string_view text) {
  const std::string lowered = lower(text);
  return lowered.starts_with("gpu-") || lowered.starts_with("mig-");
}

std::vector<std::string> parse_list(std::string_view text, std::string_view where) {
  std::vector<std::string> cards;
  for (const std::string_view part : split(text, ',')) {
    const std::string card(trim(part));
    const auto number = to_integer(card);
    if (!is_uuid(card) && (!number || *number < 0))
      throw UsageError(expectation(where, kForms, text, "0,2"));
    if (std::find(cards.begin(), cards.end(), card) != cards.end())
      throw UsageError(expectation(where, "each card once", text));
    cards.push_back(card);
  }
  return cards;
}

bool looks_like_list(std::string_view text) {
  const std::string_view first = trim(split(text, ',')[0]);
  // "4090" alone is a card of the catalogue: no machine has that many cards.
  return is_uuid(first) || (to_integer(first) && to_integer(first) < 1000);
}

const Card& listed_card(const Machine& machine, const std::string& name) {
  const auto number = to_integer(name);
  const Card* found = nullptr;
  for (const Card& card : machine.cards) {
    const bool meant = number ? !card.slice && card.index == *number : begins_with(card.uuid, name);
    if (!meant) continue;
    if (found != nullptr)
      throw UsageError(
          expectation("--gpus", "a UUID that fits one card only", name, "more of its digits"));
    found = &card;
  }
  if (found != nullptr) return *found;
  std::vector<std::string> there;
  for (const Card& card : machine.cards)
    there.push_back(card.slice ? short_text(card.uuid) : std::to_string(card.index));
  throw UsageError(expectation("--gpus", "a GPU of this machine (" + join(there, ", ") + ")", name,
                               "headroom gpus"));
}

// "1xNVIDIA GeForce RTX 4090,1xNVIDIA H100 80GB HBM3" for "RTX 4090,H100".
std::string of_each(std::string_view names, std::string_view where) {
  std::vector<std::string> cards;
  for (const std::string_view part : split(names, ',')) {
    cards.push_back("1x" + card_named(trim(part), where, kForms).name);
  }
  return join(cards, ",");
}

// "8x31.36GiB" is a simulated box but for its first word.
void refuse_box_without_sim(std::string_view text, std::string_view where) {
  const std::string box = "sim:" + std::string(text);
  const std::size_t times = text.find('x');
  if (times == std::string_view::npos || !to_integer(text.substr(0, times))) return;
  try {
    static_cast<void>(parse_simulated(box));
  } catch (const UsageError&) {
    return;
  }
  throw UsageError(expectation(where, kForms, text, box));
}

}  // namespace

Devices parse_devices(std::string_view given, std::string_view where) {
  const std::string_view text = trim(given);
  Devices devices;
  devices.text = text;
  const std::string word = lower(text);
  if (text.empty()) throw UsageError(expectation(where, kForms, given, "all"));
  if (word == "auto") return devices;
  if (word == "all") {
    devices.kind = Devices::Kind::all;
  } else if (word == "cpu") {
    devices.kind = Devices::Kind::cpu;
  } else if (word.starts_with("sim:")) {
    devices.kind = Devices::Kind::simulated;
    devices.box = parse_simulated(text);
  } else if (looks_like_list(text)) {
    devices.kind = Devices::Kind::listed;
    devices.listed = parse_list(text, where);
  } else {
    refuse_box_without_sim(text, where);
    devices.kind = Devices::Kind::simulated;
    devices.box = parse_simulated("sim:" + of_each(text, where));
  }
  return devices;
}

Devices devices_from(std::string_view option) {
  if (!option.empty()) return parse_devices(option);
  const auto preset = environment("HEADROOM_GPUS");
  if (preset && !preset->empty()) return parse_devices(*preset, "HEADROOM_GPUS");
  return {};
}

std::shared_ptr<CardSource> make_source(const Devices& devices) {
  if (devices.kind == Devices::Kind::simulated) return make_simulated_source(devices.box);
  return make_nvml_source();
}

Machine narrowed(Machine machine, const Devices& devices, const CudaEnvironment& environment) {
  if (machine.cards.empty()) return machine;  // why_no_driver already says why
  std::vector<Card> kept;
  if (!devices.listed.empty()) {
    for (const std::string& name : devices.listed) {
      const Card& card = listed_card(machine, name);
      if (std::any_of(kept.begin(), kept.end(), [&](const Card& k) { return k.uuid == card.uuid; }))
        throw UsageError(expectation(
            "--gpus", "each card once (" + name + " is " + label(card) + ")", devices.text));
      kept.push_back(card);
    }
  } else if (devices.kind == Devices::Kind::cpu) {
    // no card
  } else if (devices.kind == Devices::Kind::automatic && !machine.simulated &&
             environment.visible_devices) {
    for (const std::size_t position : cuda_view(machine, environment).cards)
      kept.push_back(machine.cards[position]);
  } else {
    return machine;
  }
  machine.cards = std::move(kept);
  return machine;
}

}  // namespace headroom::gpu
