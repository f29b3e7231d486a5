// The best placement of a model for given techniques, rows of a part, replicas and stages: which
// layers each stage has, on which cards, and which stages are checkpointed. A part of the search
// over all of these (search.h), which says what is exact.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/plan/deal.h"
#include "headroom/plan/placement.h"
#include "headroom/plan/pricer.h"
#include "headroom/plan/schedule.h"
#include "headroom/plan/search.h"
#include "headroom/plan/split.h"

namespace headroom::plan {

struct Combination {
  Form form;
  int stages = 1, parts = 1;
  std::int64_t rows = 1;  // of a replica
};

// A placement, and how it came about.
struct Placed {
  Combination combination;
  Split split;
  Placement placement;
};

class Placing {
 public:
  // Both must outlive it.
  Placing(const SearchQuestion& question, Pricer& pricer);

  // Seconds that no placement goes below.
  [[nodiscard]] double bound(const Combination& one);
  // std::nullopt if none that takes less than `limit` seconds surely fits, by what is known.
  [[nodiscard]] std::optional<Placed> fastest(const Combination& one, double limit);
  // Asks for exact figures, up to the first that does not fit.
  [[nodiscard]] bool fits_exactly(const Placed& placed);

  struct Lack {
    double share;  // needed / allowed
    Refusal refusal;
    Placed placed;  // without its seconds
  };
  // Of the placement that lacks the least. std::nullopt if that is no less than `limit`.
  [[nodiscard]] std::optional<Lack> least_lack(const Combination& one, double limit);

 private:
  // Times of the first layers, added up, to have those of a stage at once.
  struct Sums {
    std::vector<LayerTimes> upto;
    double longest = 0;  // layer
    [[nodiscard]] LayerTimes of(const Piece& piece) const;
  };
  const Sums& sums(const Form& form, int kind);
  const Deal& deal_of(const Combination& one);
  [[nodiscard]] Stage stage_of(const Combination& one, int position, const Piece& piece) const;
  // Without what cards send each other.
  [[nodiscard]] StageTimes times_of(const Combination& one, const Piece& piece,
                                    const std::vector<int>& kinds);
  [[nodiscard]] StageMemory at_least(const Combination& one, int position, const Piece& piece) {
    return pricer_.at_least(stage_of(one, position, piece));
  }
  [[nodiscard]] Bytes resident_limit(const Combination& one, const Deal::Group& group);
  [[nodiscard]] bool allows(const Combination& one, const Deal::Group& group,
                            const StageMemory& memory) {
    return memory.resident <= resident_limit(one, group) && memory.reserved <= group.reserved;
  }
  [[nodiscard]] double share_of(const Combination& one, const Deal::Group& group,
                                const StageMemory& memory);
  [[nodiscard]] Worth worth_of(const Combination& one, int position, const Piece& piece,
                               const Piece* next, const Worth& after);
  [[nodiscard]] Placement placement_of(const Combination& one, const Split& split);
  [[nodiscard]] Placement timed(const Combination& one, const Split& split);
  void improve(Placed& placed);

  const SearchQuestion& question_;
  Pricer& pricer_;
  const std::int64_t layers_;
  std::vector<int> kind_of_card_;
  int kinds_ = 1;
  std::map<std::tuple<int, std::int64_t, int>, Sums> sums_;
  std::map<std::pair<int, int>, Deal> deals_;
  std::map<std::pair<Form, int>, Bytes> balanced_;  // that a stage may have, where it is known
};

}  // namespace headroom::plan
