// Machines as tests of the sinks need them: two cards, one busy, with every figure known.
#pragma once

#include "headroom/gpu/machine.h"

namespace headroom::testing {

inline const Clock::time_point kNow = Clock::time_point(std::chrono::hours(1));

inline gpu::Card busy_card(Clock::time_point sampled) {
  using namespace headroom::literals;
  gpu::Card card;
  card.index = 0;
  card.uuid = *gpu::Uuid::parse("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  card.name = "NVIDIA GeForce RTX 4090";
  card.pci = "00000000:01:00.0";
  card.memory = gpu::CardMemory{
      .total = 24_GiB, .used = 10_GiB, .free = 13_GiB + 724_MiB, .reserved = 300_MiB};
  card.utilization = 37;
  card.memory_utilization = 12;
  card.temperature_c = 61;
  card.power_w = 231.5;
  card.persistence = true;
  gpu::GpuProcess process;
  process.pid = 1234;
  process.start_ticks = 100;
  process.user = "alice";
  process.command = "python train.py";
  process.used = 9_GiB;
  process.started = WallTime(std::chrono::seconds(1795266187));
  card.processes = {process};
  card.sampled = sampled;
  card.processes_sampled = sampled;
  return card;
}

// A card of which the driver tells nothing but that it is there.
inline gpu::Card unknown_card(Clock::time_point sampled) {
  gpu::Card card;
  card.index = 1;
  card.uuid = *gpu::Uuid::parse("GPU-00000000-0000-0000-0000-000000000001");
  card.name = "unknown GPU";
  card.sampled = sampled;
  return card;
}

inline gpu::Machine two_cards(Clock::time_point sampled) {
  gpu::Machine machine;
  machine.driver = "580.65.06";
  machine.cuda_driver = 13000;
  machine.cards = {busy_card(sampled), unknown_card(sampled)};
  return machine;
}

}  // namespace headroom::testing
