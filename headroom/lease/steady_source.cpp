#include "headroom/lease/steady_source.h"

#include <algorithm>

namespace headroom::lease {
namespace {

using gpu::Card;
using gpu::GpuProcess;

// The smaller use of each process. A process that was missing in the first list counts as 0: it may
// have taken its memory after free was read.
std::vector<GpuProcess> lesser(const std::vector<GpuProcess>& first,
                               std::vector<GpuProcess> second) {
  for (GpuProcess& process : second) {
    if (!process.pid || !process.used) continue;
    const auto before = std::find_if(first.begin(), first.end(), [&](const GpuProcess& other) {
      return other.pid == process.pid && other.start_ticks == process.start_ticks;
    });
    const auto then = before == first.end() ? std::optional<Bytes>(Bytes{0}) : before->used;
    process.used = then ? std::optional<Bytes>(std::min(*then, *process.used)) : std::nullopt;
  }
  return second;
}

class SteadySource : public gpu::CardSource {
 public:
  explicit SteadySource(std::shared_ptr<gpu::CardSource> source) : source_(std::move(source)) {}

  gpu::Machine open() override { return source_->open(); }
  void read_gauges(Card& card) override { source_->read_gauges(card); }
  void read_activity(Card& card) override { source_->read_activity(card); }

  // Samplers call it after read_gauges().
  void read_processes(Card& card) override {
    const auto memory = card.memory;
    source_->read_processes(card);
    const auto processes = card.processes;
    source_->read_gauges(card);
    if (memory && card.memory && memory->free < card.memory->free) card.memory = memory;
    source_->read_processes(card);
    if (processes && card.processes)
      card.processes = lesser(*processes, *std::move(card.processes));
    else
      card.processes.reset();
  }

 private:
  const std::shared_ptr<gpu::CardSource> source_;
};

}  // namespace

std::shared_ptr<gpu::CardSource> steady(std::shared_ptr<gpu::CardSource> source) {
  return std::make_shared<SteadySource>(std::move(source));
}

}  // namespace headroom::lease
