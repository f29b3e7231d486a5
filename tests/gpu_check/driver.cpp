// What the driver's library reports. A fake one (tests/fake_nvml) answers it as well.
#include "headroom/base/process.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/holders.h"
#include "headroom/gpu/machine.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

Json described(const gpu::Card& card) {
  Json figures = Json::object({{"name", card.name}});
  if (card.capability) figures["capability"] = {(*card.capability)[0], (*card.capability)[1]};
  if (card.memory) {
    figures["total"] = card.memory->total.count;
    figures["used"] = card.memory->used.count;
    figures["reserved"] = or_null(card.memory->reserved);
    figures["free"] = card.memory->free.count;
  }
  figures["processes"] = card.processes ? Json(card.processes->size()) : Json();
  return figures;
}

void check_card(const gpu::Card& card, std::vector<std::string>& complaints) {
  const std::string name = label(card);
  if (card.stuck || !card.trouble.empty())
    complaints.push_back(name + ": " + (card.stuck ? "the driver does not answer" : card.trouble));
  if (card.mig_enabled) return;
  if (!card.memory) return complaints.push_back(name + ": no memory figures");
  const gpu::CardMemory& memory = *card.memory;
  if (memory.used + memory.reserved.value_or(Bytes{}) + memory.free != memory.total)
    complaints.push_back(name + ": used, reserved and free are not the total");
  if (!card.processes) complaints.push_back(name + ": no list of processes");
}

}  // namespace

Outcome check_driver(Place&) {
  const gpu::Machine machine = machine_now();
  if (machine.cards.empty() && !machine.why_no_driver.empty()) {
    Outcome outcome = not_run(machine.why_no_driver);
    outcome.no_card = true;
    return outcome;
  }
  std::vector<std::string> complaints;
  Json cards = Json::array();
  for (const gpu::Card& card : machine.cards) {
    check_card(card, complaints);
    cards.push_back(described(card));
  }
  if (machine.cards.empty()) complaints.emplace_back("the driver lists no card");
  const auto holders = gpu::explain_holders(machine, ProcessTable(), false);
  std::string words = "driver " + machine.driver.value_or("?") + ", " +
                      std::to_string(machine.cards.size()) + " cards, " +
                      std::to_string(holders.size()) + " holders of memory";
  if (!machine.cards.empty()) words += "; GPU 0 is " + machine.cards[0].name;
  return judged(
      complaints, words,
      {{"driver", or_null(machine.driver)},
       {"cuda_driver", or_null(machine.cuda_driver)},
       {"cards", std::move(cards)},
       {"holders", holders.size()},
       {"cuda_sees", gpu::cuda_view(machine, gpu::CudaEnvironment::current()).cards.size()}});
}

}  // namespace headroom::gpu_check
