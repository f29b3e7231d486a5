#include "headroom/parallel/layout.h"

#include "headroom/base/error.h"
#include "headroom/parallel/in_process.h"

namespace headroom::parallel {

std::vector<Ranks> in_process(const Layout& layout) {
  if (layout.replicas < 1 || layout.stages < 1)
    throw UsageError(expectation(
        "in_process", "one replica or more, of one stage or more",
        std::to_string(layout.replicas) + " of " + std::to_string(layout.stages) + " stages"));
  std::vector<Ranks> ranks(static_cast<std::size_t>(layout.ranks()));
  if (ranks.size() == 1) return ranks;
  const auto put = [&](Group Ranks::*which, int size, const auto& rank_of) {
    const auto backends = in_process(size);
    for (int i = 0; i < size; ++i)
      ranks[static_cast<std::size_t>(rank_of(i))].*which =
          Group(backends[static_cast<std::size_t>(i)]);
  };
  put(&Ranks::all, layout.ranks(), [](int i) { return i; });
  for (int stage = 0; stage < layout.stages && layout.replicas > 1; ++stage)
    put(&Ranks::replicas, layout.replicas, [&](int i) { return i * layout.stages + stage; });
  for (int replica = 0; replica < layout.replicas && layout.stages > 1; ++replica)
    put(&Ranks::stages, layout.stages, [&](int i) { return replica * layout.stages + i; });
  return ranks;
}

Ranks alone(const Ranks& rank) {
  const auto without_others = [](const Group& group) {
    return group.size() == 1 ? Group() : Group(in_process_alone(group.rank(), group.size()));
  };
  return {without_others(rank.all), without_others(rank.replicas), without_others(rank.stages)};
}

}  // namespace headroom::parallel
