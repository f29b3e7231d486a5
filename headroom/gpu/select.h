// Which card to take: those with enough room, the best first, and a reason when there is none.
//
// The answer is a value: "none has room" carries the shortfall and who holds the memory. What a
// card can give is a function, so that reservations narrow it without this file knowing them.
//
//   Selection best = find_best_device(machine, {.need = 10_GiB});
//   if (best.picked.empty()) say(best.sentence);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/card.h"

namespace headroom::gpu {

enum class Order { most_free, least_loaded, index };
// "most-free", "least-loaded", "index"; throws UsageError.
[[nodiscard]] Order parse_order(std::string_view text);

// What a new process could be given on a card; nothing if unknown. Unknown is never taken.
using Usable = std::function<std::optional<Bytes>(const Card&)>;

struct DeviceRequest {
  Bytes need{0};  // on each card
  int count = 1;
  Order order = Order::most_free;
  bool allow_cpu = false;  // answer "the CPU" when no card has room; said in `sentence`
};

// Somebody who holds memory on a card that was too full.
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
  std::optional<Bytes> shortfall;  // what the best of the cards that do not do lacks; empty if done
  std::vector<Holder> holders;     // on that card, biggest first
  std::optional<Bytes> unlisted;   // in use there by no listed process
  bool hopeless = false;           // waiting cannot help: too few cards, or none is large enough
  bool stale = false;              // nothing was decided, because all data was too old
  std::string sentence;            // why nothing was picked, or why the CPU was; empty otherwise
};

// Looks at the cards as they were sampled; those whose data is older than kFreshFor do not count.
[[nodiscard]] Selection find_best_device(const Machine& machine, const DeviceRequest& request,
                                         const Usable& usable = usable_now,
                                         Clock::time_point now = Clock::now());

// "1234 alice 10.00 GiB (python train.py)": how messages name a holder.
[[nodiscard]] std::string describe(const GpuProcess& process);

}  // namespace headroom::gpu
