// Shows a running `headroom train` on standard error, and its results at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/cli/core/terminal.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {

class TrainingView {
 public:
  // A line that stays.
  void say(std::string_view text);
  // The bar of a running training: redrawn on a terminal, else a line now and then.
  void show(const train::Progress& progress, std::optional<Bytes> peak);
  void show_event(const train::Event& event);
  void show_evaluation(const train::Evaluated& result, std::int64_t step);
  void end() { line_.clear(); }

 private:
  ProgressLine line_{10};
  int shown_ = 0;  // steps
};

}  // namespace headroom::cli
