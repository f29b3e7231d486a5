#include "headroom/cli/engine/train/training_story.h"

#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/engine/train/training_document.h"

namespace headroom::cli {
namespace {

constexpr std::size_t kMostNotes = 20;

// The advice of a report names keys.
const train::AdviceWords kKeys{.min_micro_batch = "min_batch_size=",
                               .max_retries = "max_retries=",
                               .are_keys = true,
                               .autocast = "bf16=true",
                               .allocator = "alloc_conf=",
                               .is_own_loop = false};

}  // namespace

void TrainingStory::hear(const train::Event& event) {
  using Kind = train::Event::Kind;
  heard_.push_back(event);
  if (event.kind != Kind::checkpoint && event.kind != Kind::restore && notes_.size() < kMostNotes)
    notes_.push_back(to_string(event));
}

void TrainingStory::explain(
    train::Step& step, const train::StepOptions& options,
    const std::function<std::vector<gpu::HolderReport>(c10::Device)>& holders_of) {
  const train::Failure* const last = step.last_failure();
  if (last == nullptr) return;
  train::OomFacts facts = train::facts_of(step, *last, options);
  facts.holders = holders_of(facts.device);
  facts.words = kKeys;
  explain(train::oom_report(facts));
}

void TrainingStory::explain(const train::OomReport& report) {
  report_ = report;
  const std::string text = to_string(report);
  for (const std::string_view line : split(trim(text), '\n')) notes_.emplace_back(line);
  print_error(text);
}

Json TrainingStory::document_of_failure(train::Trainer* trainer, const config::Resolved& config,
                                        std::int64_t effective_batch) const {
  std::vector<train::Event> all = before;
  all.insert(all.end(), heard_.begin(), heard_.end());
  return cli::document_of_failure(trainer, config, effective_batch, all, report_);
}

}  // namespace headroom::cli
