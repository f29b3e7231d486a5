#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/cli/core/top/draw.h"
#include "headroom/gpu/machine_advice.h"

namespace headroom::cli {
namespace {

constexpr int kCardCells = 3, kPidCells = 8, kUserCells = 9, kMemoryCells = 7, kAgeCells = 7,
              kLeaseCells = 8;

struct ProcessColumns {
  bool has_lease = false;
  int command = 0;
};

ProcessColumns columns_for(const std::vector<ProcessRow>& rows, int width) {
  const bool is_leased =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return !row.lease.empty(); });
  ProcessColumns columns{.has_lease = is_leased && width >= 76};
  const int taken = kCardCells + kPidCells + kUserCells + kMemoryCells + kAgeCells + 5;
  columns.command = std::max(10, width - taken - (columns.has_lease ? 1 + kLeaseCells : 0));
  return columns;
}

std::string age_of(const ProcessRow& row, const Picture& picture) {
  return row.started ? brief_age(Seconds(picture.wall - *row.started)) : "?";
}

// A training of ours by its name, because its figures stand below.
std::string command_of(const ProcessRow& row) {
  return row.job ? "headroom " + row.job->what : gpu::without_folder(row.command);
}

std::string line_of(const ProcessRow& row, const ProcessColumns& columns, const Picture& picture,
                    const Terminal& terminal) {
  std::string text;
  const auto add = [&](const std::string& part, int width, bool right) {
    if (!text.empty()) text += ' ';
    text += in_cells(showable(part, terminal), width, terminal, right);
  };
  add(std::to_string(row.card), kCardCells, true);
  add(row.process ? std::to_string(row.process->pid) : "?", kPidCells, true);
  add(row.user, kUserCells, false);
  add(row.used ? brief(*row.used) : "?", kMemoryCells, true);
  add(age_of(row, picture), kAgeCells, true);
  if (columns.has_lease) add(row.lease, kLeaseCells, false);
  add(command_of(row), columns.command, false);
  return text;
}

// "memory v": the order goes down from the top; reversed, up.
std::string title_of(const char* title, SortBy order, const Controls& controls,
                     const Terminal& terminal) {
  if (controls.sort_by != order) return title;
  const char* mark =
      controls.is_reversed ? (terminal.unicode ? "▲" : "^") : (terminal.unicode ? "▼" : "v");
  return title + std::string(mark);
}

std::string titles(const ProcessColumns& columns, const Controls& controls,
                   const Terminal& terminal) {
  const auto title = [&](const char* text, SortBy order, int width, bool right) {
    return in_cells(title_of(text, order, controls, terminal), width, terminal, right);
  };
  std::string text = title("GPU", SortBy::card, kCardCells, true);
  if (controls.sort_by == SortBy::card) text = title_of("GP", SortBy::card, controls, terminal);
  text += " " + title("PID", SortBy::pid, kPidCells, true) + " " +
          title("user", SortBy::user, kUserCells, false) + " " +
          title("memory", SortBy::memory, kMemoryCells, true) + " " +
          title("age", SortBy::age, kAgeCells, true);
  if (columns.has_lease) text += " " + in_cells("lease", kLeaseCells, terminal);
  return text + " command";
}

}  // namespace

std::string job_text(const watch::JobStatus& job, const Terminal& terminal) {
  std::vector<std::string> parts;
  if (job.step && job.steps) parts.push_back(fmt::format("step {}/{}", *job.step, *job.steps));
  if (job.loss) parts.push_back(fmt::format("loss {:.4g}", *job.loss));
  if (job.ooms_survived > 0)
    parts.push_back("survived " + counted(static_cast<long long>(job.ooms_survived), "OOM"));
  if (job.batch) parts.push_back(fmt::format("batch {}", *job.batch));
  if (!job.plan.empty()) parts.push_back(job.plan);
  if (job.rows_per_s) parts.push_back(fmt::format("{:.3g} rows/s", *job.rows_per_s));
  if (!job.step) parts.push_back("starting");
  return showable(join(parts, std::string(" ") + terminal.dash() + " "), terminal);
}

Pane process_pane(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  const Terminal& terminal = canvas.terminal;
  const auto rows = shown_rows(picture, controls);
  const ProcessColumns columns = columns_for(rows, terminal.width);
  Pane pane{.lines = {}, .titles = titles(columns, controls, terminal)};
  const std::size_t selected = selected_row(rows, controls);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_selected = i == selected && !controls.is_on_cards && !canvas.is_endless();
    if (i == selected) pane.selected = pane.lines.size();
    Line line{{line_of(rows[i], columns, picture, terminal),
               rows[i].process ? Colour::plain : Colour::dim}};
    if (is_selected) line = reversed(std::move(line), terminal.width, terminal);
    pane.lines.push_back(std::move(line));
    pane.row_of.push_back(static_cast<int>(i));
    if (!rows[i].job) continue;
    pane.lines.push_back({{"    "}, {job_text(*rows[i].job, terminal), Colour::cyan}});
    pane.row_of.push_back(static_cast<int>(i));
  }
  return pane;
}

}  // namespace headroom::cli
