// The course of a run: its events, the notes for its page, and the report of an out-of-memory that
// ended it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/config/resolved.h"
#include "headroom/train/oom_report.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {

class TrainingStory {
 public:
  // Events while the model was made, and those since then, with those of a step that fails.
  std::vector<train::Event> before;
  void hear(const train::Event& event);
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // Prints the report and keeps it for the page and the document.
  void explain(const train::OomReport& report);
  // The report of a failure of the step, if it was an out-of-memory. `holders_of`: processes that
  // hold memory of a card.
  void explain(train::Step& step, const train::StepOptions& options,
               const std::function<std::vector<gpu::HolderReport>(c10::Device)>& holders_of);

  // The document of a run that memory ended. `trainer`: null if it did not come so far.
  [[nodiscard]] Json document_of_failure(train::Trainer* trainer, const config::Resolved& config,
                                         std::int64_t effective_batch) const;

 private:
  std::vector<train::Event> heard_;
  std::vector<std::string> notes_;
  std::optional<train::OomReport> report_;
};

}  // namespace headroom::cli
