#include "headroom/gpu/machine_advice.h"

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/gpu/holders.h"
#include "headroom/gpu/select.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

constexpr Bytes kNothing = 600_MiB;  // idle below this: the share of a desktop or an idle driver

std::string list_of(const std::vector<const Card*>& cards) {
  std::vector<std::string> names;
  for (const Card* card : cards)
    names.push_back(card->slice ? short_text(card->uuid) : std::to_string(card->index));
  return (cards.size() == 1 ? "GPU " : "GPUs ") + join(names, ", ");
}

std::string brief(GpuProcess process) {
  if (process.command) process.command = without_folder(*process.command);
  return describe(process);
}

// "GPUs 2, 3 are idle: 31.00 GiB each".
void idle_cards(const std::vector<const Card*>& idle, const Machine& machine, Advice& advice) {
  if (idle.empty() || idle.size() == machine.cards.size()) return;
  Bytes least = idle[0]->memory->free;
  for (const Card* card : idle) least = std::min(least, card->memory->free);
  advice.lines.push_back(list_of(idle) + (idle.size() == 1 ? " is idle: " : " are idle: ") +
                         to_string(least) + (idle.size() == 1 ? " free" : " free on each"));
}

// On a crowded card beside an idle one, the smallest job is the best one to move.
void who_could_move(const std::vector<const Card*>& idle, const Machine& machine, Advice& advice) {
  if (idle.empty()) return;
  for (const Card& card : machine.cards) {
    if (!card.memory || !card.processes || card.mig_enabled) continue;
    std::vector<const GpuProcess*> jobs;
    for (const GpuProcess& process : *card.processes)
      if (process.kind == ProcessKind::compute && process.used) jobs.push_back(&process);
    const bool crowded = jobs.size() >= 2 && ratio(card.memory->free, card.memory->total) < 0.2;
    if (!crowded) continue;
    const GpuProcess* smallest = *std::min_element(
        jobs.begin(), jobs.end(), [](const auto* a, const auto* b) { return *a->used < *b->used; });
    const auto room = std::find_if(idle.begin(), idle.end(), [&](const Card* other) {
      return other->memory->free > *smallest->used;
    });
    if (room == idle.end()) continue;
    advice.lines.push_back(label(card) + " has " + to_string(card.memory->free) + " left for " +
                           counted(static_cast<long long>(jobs.size()), "job") + ": " +
                           brief(*smallest) + " would fit on idle " + label(**room));
  }
}

// Memory held by jobs that compute nothing at this moment.
void held_but_unused(const Machine& machine, Advice& advice) {
  for (const Card& card : machine.cards) {
    if (!card.memory || !card.processes || card.utilization.value_or(1) != 0) continue;
    const GpuProcess* biggest = nullptr;
    for (const GpuProcess& process : *card.processes)
      if (process.kind == ProcessKind::compute && process.used &&
          (biggest == nullptr || *process.used > *biggest->used))
        biggest = &process;
    if (biggest == nullptr || *biggest->used < 1_GiB) continue;
    advice.lines.push_back(label(card) + " computes nothing now, but " + brief(*biggest) +
                           " holds memory on it");
  }
}

void without_a_name(const Machine& machine, Advice& advice) {
  for (const Card& card : machine.cards) {
    const auto unlisted = unlisted_memory(card);
    if (!unlisted) continue;
    // CUDA contexts of the listed processes account for part of it.
    const Bytes contexts = 700_MiB * static_cast<std::int64_t>(card.processes->size() + 1);
    if (*unlisted - contexts > 1_GiB)
      advice.lines.push_back(label(card) + ": " + to_string(*unlisted) +
                             " are held by no listed process; headroom clean explains");
  }
}

void troubles(const Machine& machine, Advice& advice) {
  for (const Card& card : machine.cards) {
    if (card.persistence == false && !card.slice) {
      advice.lines.push_back(
          "persistence mode is off, so each query starts the driver again; nvidia-smi -pm 1 (as "
          "root) keeps it loaded");
      break;
    }
  }
}

std::string next_command(const Machine& machine) {
  if (machine.cards.empty()) return machine.simulated ? "headroom cards" : "headroom doctor";
  const Selection best = find_best_device(machine, {});
  const bool full = best.picked.empty() || best.picked[0].usable < 2_GiB;
  if (full) return machine.simulated ? "headroom gpus --processes" : "headroom clean";
  if (machine.simulated) return "headroom models";
  return "headroom pick --need 2GiB";
}

}  // namespace

std::string without_folder(const std::string& command) {
  const std::size_t folder = command.substr(0, command.find(' ')).rfind('/');
  return folder == std::string::npos ? command : command.substr(folder + 1);
}

// A card with withheld memory is not idle: a job that will use the memory is about to start.
bool is_idle(const Card& card) {
  if (card.mig_enabled || !card.memory || card.stuck || card.withheld.now > Bytes{0}) return false;
  const bool computes =
      card.processes &&
      std::any_of(card.processes->begin(), card.processes->end(),
                  [](const GpuProcess& p) { return p.kind != ProcessKind::graphics; });
  return !computes && card.memory->used < kNothing;
}

Advice advise(const Machine& machine) {
  Advice advice;
  std::vector<const Card*> idle;
  for (const Card& card : machine.cards)
    if (is_idle(card)) idle.push_back(&card);
  who_could_move(idle, machine, advice);
  held_but_unused(machine, advice);
  without_a_name(machine, advice);
  idle_cards(idle, machine, advice);
  troubles(machine, advice);
  advice.next_command = next_command(machine);
  return advice;
}

}  // namespace headroom::gpu
