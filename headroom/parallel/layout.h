// How ranks share a training: `replicas` copies of a model, each of them cut into `stages`.
// Replica 0 has the ranks 0 to stages - 1, and so on.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/parallel/group.h"

namespace headroom::parallel {

struct Layout {
  int replicas = 1, stages = 1;

  [[nodiscard]] int ranks() const { return replicas * stages; }
  [[nodiscard]] int replica_of(int rank) const { return rank / stages; }
  [[nodiscard]] int stage_of(int rank) const { return rank % stages; }
  // Replicas divide the rows of a batch: those of the largest.
  [[nodiscard]] std::int64_t rows_of_largest(std::int64_t rows) const {
    return (rows + replicas - 1) / replicas;
  }
};

// The groups of a rank: all ranks; those with the same stage, one of each replica; and the stages
// of its replica. By default the rank is alone.
struct Ranks {
  Group all, replicas, stages;
};

// Of ranks that are threads of this process (in_process.h), by rank.
[[nodiscard]] std::vector<Ranks> in_process(const Layout& layout);
// The same rank without the others, for a dry run.
[[nodiscard]] Ranks alone(const Ranks& rank);

}  // namespace headroom::parallel
