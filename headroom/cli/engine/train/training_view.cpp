#include "headroom/cli/engine/train/training_view.h"

#include <cstdio>

#include "headroom/base/time.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {
namespace {

std::string number(const char* form, double value) {
  char text[32];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

}  // namespace

void TrainingView::say(std::string_view text) {
  line_.clear();
  print_error("headroom train: " + std::string(text) + "\n");
}

void TrainingView::show(const train::Progress& progress, std::optional<Bytes> peak) {
  const double share = static_cast<double>(progress.step) /
                       static_cast<double>(std::max<std::int64_t>(progress.steps, 1));
  std::string text =
      terminal_.is_terminal ? terminal_.paint(terminal_.bar(share, 20), Colour::green) + " " : "";
  text += "step " + std::to_string(progress.step) + "/" + std::to_string(progress.steps) +
          "  loss " + number("%.4f", progress.loss) + "  " + number("%.1f", progress.rows_per_s) +
          " rows/s";
  if (peak) text += "  peak " + to_string(*peak);
  text += "  " + duration_text(Seconds(progress.seconds_left)) + " left";
  line_.show(text);
}

void TrainingView::show_event(const train::Event& event) {
  using Kind = train::Event::Kind;
  if (event.kind == Kind::checkpoint || event.kind == Kind::restore)
    return say(event.kind == Kind::checkpoint
                   ? "checkpoint of step " + std::to_string(event.step) + " saved"
                   : "going on after the checkpoint of step " + std::to_string(event.step));
  say(to_string(event));
}

void TrainingView::show_evaluation(const train::Evaluated& result, std::int64_t step) {
  std::string text =
      "evaluation after step " + std::to_string(step) + ": loss " + number("%.4f", result.loss);
  if (result.accuracy) text += ", accuracy " + number("%.2f %%", 100 * *result.accuracy);
  say(text);
}

std::string plan_line(train::Step& step, const train::Plan& plan, std::int64_t rows) {
  const std::int64_t parts = count_of_parts(plan, rows);
  std::string text = "a step of " + std::to_string(rows) + " rows runs " +
                     (parts == 1 ? "at once" : "in " + std::to_string(parts) + " parts") + ": " +
                     to_string(plan);
  const train::Prices* const prices = step.prices();
  if (prices == nullptr) return text + "; its memory is not known (" + step.why_unpriced() + ")";
  const auto needed = prices->needed(plan, {.rows = rows});
  if (needed) text += "; needs " + to_string(*needed);
  if (const auto room = memory::get_gpu_memory_stats(step.device()).obtainable())
    text += " of " + to_string(*room) + " that are free";
  return text;
}

}  // namespace headroom::cli
