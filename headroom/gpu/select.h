// Chooses cards with enough usable memory, best first, or gives the reason why there is none.
//
// The result is a value: if no card fits, it carries the shortfall and the holders of the memory. A
// function gives the usable memory of a card, so that leases can lower it without this file knowing
// about them.
//
//   Selection best = find_best_device(machine, {.need = 10_GiB});
//   if (best.picked.empty()) say(best.sentence);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/machine.h"

namespace headroom::gpu {

enum class Order { most_free, least_loaded, index };
// "most-free", "least-loaded", "index"; throws UsageError.
[[nodiscard]] Order parse_order(std::string_view text);

// Memory that a new process could be given on a card; std::nullopt if unknown. An unknown card is
// never picked.
using Usable = std::function<std::optional<Bytes>(const Card&)>;

struct DeviceRequest {
  Bytes need{0};  // on each card
  int count = 1;
  Order order = Order::most_free;
  bool allow_cpu = false;  // answer "the CPU" if no card fits; `sentence` says so
};

// A process that holds memory on a card that was too full.
struct Holder {
  Uuid card;
  GpuProcess process;
};

struct Selection {
  struct Pick {
    Card card;
    Bytes usable;
  };
  std::vector<Pick> picked;        // `count` cards, best first, or none
  bool cpu = false;                // no card; the CPU was allowed
  std::optional<Bytes> shortfall;  // missing on the best card that does not fit; empty on success
  std::vector<Holder> holders;     // on that card, largest first
  std::optional<Bytes> unlisted;   // in use there by no listed process
  bool cannot_be_met = false;      // waiting cannot help: too few cards, or none large enough
  bool stale = false;              // no decision: all data was too old
  std::string sentence;            // why no card was picked, or why the CPU was; else empty
};

// Uses the cards as sampled; ignores cards whose data is older than kFreshFor.
[[nodiscard]] Selection find_best_device(const Machine& machine, const DeviceRequest& request,
                                         const Usable& usable = usable_now,
                                         Clock::time_point now = Clock::now());

// "PID 1234 alice 10.00 GiB (python train.py)": a holder in messages.
[[nodiscard]] std::string describe(const GpuProcess& process);

}  // namespace headroom::gpu
