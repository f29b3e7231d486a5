// The checkpoints of a run: the newest ones in its folder, and that of its best evaluation in
// best/. A save that fails, on a full disk for instance, does not end the run: it is reported once,
// and the next save tries again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/train/checkpoint.h"
#include "headroom/train/evaluation.h"

namespace headroom::train::detail {

class RunCheckpoints {
 public:
  struct Hears {
    std::function<void(std::int64_t step)> saved;
    std::function<void(std::string_view line)> say;
  };
  RunCheckpoints(std::filesystem::path out, int keep, Hears hears);

  // Puts the newest sound one into the step, those in best/ included (checkpoint.h).
  [[nodiscard]] std::optional<FoundCheckpoint> load(Step& step);
  // The unsound ones that are newer than the loaded one get a name that no later run takes for a
  // checkpoint's, so that they neither count as kept nor stand in the way.
  void put_refused_away();

  // `place`: saved with the checkpoint, besides the step's own state. Both begin with `first`,
  // without which there is no checkpoint either.
  using First = std::function<void()>;
  void save(Step& step, const std::string& place, const First& first = {});
  // Unless best/ has a sound one of an evaluation at least as good.
  void save_if_best(Step& step, const std::string& place, const Evaluated& result,
                    const First& first = {});
  // Hears of a save that has ended since.
  void look();
  // Until nothing is being written.
  void wait();
  // Why the state of the last save() is not on the disk; "" if it is.
  [[nodiscard]] const std::string& failure() const { return failure_; }

  // A sentence, if the checkpoints that this run will keep need more than the disk has free.
  [[nodiscard]] std::optional<std::string> forecast(Step& step, bool saves_often,
                                                    bool evaluates) const;
  // The weights of the best evaluation, into the module; returns its step.
  [[nodiscard]] std::optional<std::int64_t> load_best_weights(Step& step);

 private:
  bool attempt(std::int64_t step, std::string& failure, const std::function<void()>& what);
  void wait_for_last();
  void wait_for_best();

  std::filesystem::path out_;
  int keep_;
  Hears hears_;
  std::shared_ptr<FrozenPart> frozen_;
  Checkpoints last_, best_;
  std::vector<std::filesystem::path> refused_;
  std::optional<Evaluated> kept_, being_kept_;  // that of best/
  bool is_kept_known_ = false;
  std::int64_t saved_ = -1, writing_ = -1, writing_best_ = -1;  // steps
  std::string failure_, best_failure_;
  bool is_told_ = false;
};

}  // namespace headroom::train::detail
