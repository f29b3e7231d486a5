#include "headroom/cli/engine/train/training_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "headroom/base/text.h"
#include "headroom/base/time.h"

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
  for (const std::string_view line : split(trim(text), '\n'))
    print_error(fmt::format("headroom train: {}\n", line));
}

void TrainingView::show(const train::Progress& progress, std::optional<Bytes> peak) {
  const double share = static_cast<double>(progress.step) /
                       static_cast<double>(std::max<std::int64_t>(progress.steps, 1));
  const std::string step = fmt::format("step {}/{}  loss {}", progress.step, progress.steps,
                                       number("%.4f", progress.loss));
  const std::string rate = fmt::format("  {} rows/s", number("%.1f", progress.rows_per_s));
  const std::string memory = peak ? "  peak " + to_string(*peak) : "";
  const bool is_last = progress.step == progress.steps;
  constexpr int kWarmUp = 3;  // steps that are slower than the others
  const std::string left =
      ++shown_ <= kWarmUp || is_last
          ? ""
          : fmt::format("  {} left", duration_text(Seconds(progress.seconds_left)));
  const Terminal terminal = standard_error();
  if (!terminal.is_terminal) return line_.show(step + rate + memory + left, is_last);
  // Where the terminal has no room, the bar's length goes first, then memory, then the rate.
  const auto room = terminal.width - 3;
  std::string text = step + rate + memory + left;
  for (const std::string& shorter : {step + rate + left, step + left})
    if (static_cast<int>(text.size()) > room) text = shorter;
  const int bar = std::min(20, room - static_cast<int>(text.size()) - 1);
  if (bar >= 4) text = terminal.paint(terminal.bar(share, bar), Colour::green) + " " + text;
  line_.show(text);
}

void TrainingView::show_event(const train::Event& event) {
  using Kind = train::Event::Kind;
  if (event.kind == Kind::unpriced) return;  // plan_line() has said so
  if (event.kind == Kind::checkpoint || event.kind == Kind::restore)
    return say(event.kind == Kind::checkpoint
                   ? "checkpoint of step " + std::to_string(event.step) + " saved"
                   : "going on after the checkpoint of step " + std::to_string(event.step));
  say(to_string(event));
}

void TrainingView::show_evaluation(const train::Evaluated& result, std::int64_t step) {
  std::string text =
      fmt::format("evaluation after step {}: loss {}", step, number("%.4f", result.loss));
  if (result.accuracy) text += ", accuracy " + number("%.2f %%", 100 * *result.accuracy);
  say(text);
}

}  // namespace headroom::cli
