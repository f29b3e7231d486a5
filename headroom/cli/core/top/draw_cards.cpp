#include <fmt/format.h>

#include <algorithm>

#include "headroom/cli/core/top/draw.h"
#include "headroom/cli/core/view/machine_view.h"

namespace headroom::cli {
namespace {

constexpr int kNumber = 3, kMemory = 13, kUsable = 7, kLoad = 4, kTemperature = 4, kPower = 5;

// The columns that the width has room for, the most useful first.
struct CardColumns {
  int bar = 8, name = 0, graph = 0;  // 0: left out
  bool has_temperature = false, has_power = false, has_load = false;
};

// A figure that no card reports (on simulated ones, load) has no column or graph; one look has no
// history.
CardColumns columns_for(const std::vector<gpu::Card>& cards, const Canvas& canvas) {
  CardColumns columns;
  const auto any = [&](auto figure) {
    return std::any_of(cards.begin(), cards.end(),
                       [&](const gpu::Card& card) { return (card.*figure).has_value(); });
  };
  columns.has_load = any(&gpu::Card::utilization);
  int left = canvas.terminal.width - (kNumber + 1 + columns.bar + 1 + kMemory + 1 + kUsable);
  if (columns.has_load) left -= 1 + kLoad;
  const auto take = [&](int wanted) {
    if (left < wanted) return false;
    left -= wanted;
    return true;
  };
  columns.has_temperature = any(&gpu::Card::temperature_c) && take(1 + kTemperature);
  if (take(1 + 10)) columns.name = 10;
  columns.has_power = any(&gpu::Card::power_w) && take(1 + kPower);
  const int graphs = columns.has_load ? 2 : 1;
  if (!canvas.is_endless() && take(graphs * (1 + 8))) columns.graph = 8;
  const auto widen = [&](int& column, int most, int times) {
    if (column == 0) return;
    const int more = std::clamp(left / times, 0, most - column);
    column += more;
    left -= times * more;
  };
  widen(columns.bar, 20, 1);
  widen(columns.name, 18, 1);
  widen(columns.graph, 60, graphs);
  return columns;
}

Colour colour_of(double share) {
  return share >= 0.9 ? Colour::red : share >= 0.75 ? Colour::yellow : Colour::green;
}

class CardLine {
 public:
  CardLine(const gpu::Card& card, const Picture& picture, const Canvas& canvas,
           const CardColumns& columns)
      : card_(card),
        picture_(picture),
        terminal_(canvas.terminal),
        columns_(columns),
        is_stale_(cli::is_stale(card, picture, canvas.now)),
        age_(age(card, canvas.now)) {}

  [[nodiscard]] Line make() {
    add_name();
    add_memory();
    if (is_stale_ || !card_.trouble.empty())
      add_reason();
    else
      add_gauges();
    add_graphs();
    return std::move(line_);
  }

 private:
  void add(std::string_view text, int width, bool right, Colour colour = Colour::plain) {
    if (!line_.empty()) line_.push_back({" "});
    line_.push_back({in_cells(text, width, terminal_, right), is_stale_ ? Colour::dim : colour});
  }
  void add_name() {
    add(card_.slice ? "" : std::to_string(card_.index), kNumber, true, Colour::bold);
    const std::string name = card_.slice ? short_text(card_.uuid) : brief_name(card_);
    if (columns_.name > 0) add(showable(name, terminal_), columns_.name, false);
  }
  void add_memory() {
    if (!card_.memory) return add("memory unknown", columns_.bar + 1 + kMemory, false);
    const Bytes taken = taken_of(*card_.memory);
    const double share = ratio(taken, card_.memory->total);
    Terminal plain = terminal_;
    plain.colour = false;  // colours are the line's
    add(plain.bar(share, columns_.bar), columns_.bar, false, colour_of(share));
    add(brief_of(taken, card_.memory->total), kMemory, true);
  }
  void add_gauges() {
    const auto usable = usable_now(card_);
    add(usable ? brief(*usable) : "?", kUsable, true);
    if (columns_.has_load)
      add(card_.utilization ? fmt::format("{}%", *card_.utilization) : "?", kLoad, true);
    if (columns_.has_temperature)
      add(card_.temperature_c ? fmt::format("{}C", *card_.temperature_c) : "?", kTemperature, true);
    if (columns_.has_power)
      add(card_.power_w ? fmt::format("{:.0f}W", *card_.power_w) : "?", kPower, true);
  }
  // In place of the figures: they are old, or the driver gives none.
  void add_reason() {
    int width = kUsable + (columns_.has_load ? 1 + kLoad : 0) +
                (columns_.has_temperature ? 1 + kTemperature : 0) +
                (columns_.has_power ? 1 + kPower : 0);
    std::string why = card_.trouble;
    if (is_stale_) why = age_ ? fmt::format("stale {:.0f} s", age_->count()) : "no data";
    line_.push_back({" "});
    line_.push_back(
        {in_cells(showable(why, terminal_), width, terminal_, is_stale_), Colour::yellow});
  }
  void add_graphs() {
    if (columns_.graph == 0) return;
    add(graph(picture_.history.memory(card_.uuid, columns_.graph), terminal_), columns_.graph,
        false, Colour::cyan);
    if (!columns_.has_load) return;
    add(graph(picture_.history.load(card_.uuid, columns_.graph), terminal_), columns_.graph, false,
        Colour::magenta);
  }

  const gpu::Card& card_;
  const Picture& picture_;
  const Terminal& terminal_;
  const CardColumns columns_;
  const bool is_stale_;
  const std::optional<Seconds> age_;
  Line line_;
};

std::string titles(const CardColumns& columns, Seconds interval, const Terminal& terminal) {
  std::string text = in_cells("GPU", kNumber, terminal, true);
  const auto add = [&](std::string_view title, int width, bool right) {
    text += " " + in_cells(title, width, terminal, right);
  };
  if (columns.name > 0) add("name", columns.name, false);
  add("memory", columns.bar, false);
  add("used/total", kMemory, true);
  add("usable", kUsable, true);
  if (columns.has_load) add("load", kLoad, true);
  if (columns.has_temperature) add("temp", kTemperature, true);
  if (columns.has_power) add("power", kPower, true);
  if (columns.graph > 0) {
    const std::string span = " " + brief_age(History::kSamples * interval);
    add(columns.graph >= 12 ? "memory" + span : "memory", columns.graph, false);
    if (columns.has_load) add(columns.graph >= 12 ? "load" + span : "load", columns.graph, false);
  }
  return text;
}

}  // namespace

Pane card_pane(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  const CardColumns columns = columns_for(picture.machine.cards, canvas);
  Pane pane{.lines = {}, .titles = titles(columns, picture.interval, canvas.terminal)};
  if (columns.name > 0) pane.numbers_at = kNumber + 1;
  const auto& cards = picture.machine.cards;
  if (!cards.empty()) pane.selected = std::min(controls.card, cards.size() - 1);
  for (std::size_t i = 0; i < cards.size(); ++i) {
    Line line = CardLine(cards[i], picture, canvas, columns).make();
    if (controls.is_on_cards && i == pane.selected)
      line = reversed(std::move(line), canvas.terminal.width, canvas.terminal);
    pane.lines.push_back(std::move(line));
    pane.row_of.push_back(static_cast<int>(i));
  }
  return pane;
}

}  // namespace headroom::cli
