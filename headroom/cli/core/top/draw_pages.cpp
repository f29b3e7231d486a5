#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/cli/core/top/draw.h"

namespace headroom::cli {
namespace {

// A text of several lines.
void add_text(Screen& screen, std::string_view text, Colour colour = Colour::plain) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::string_view line : split(text, '\n'))
    screen.push_back({{std::string(line), colour}});
}

void add_field(Screen& screen, const std::string& name, const std::string& value,
               const Canvas& canvas) {
  if (value.empty()) return;
  const std::string first = " " + name + std::string(9 - name.size(), ' ');
  add_text(screen, wrapped(showable(value, canvas.terminal), first, std::string(10, ' '),
                           canvas.terminal.width - 1));
}

// With the way back on the last line.
Screen on_the_screen(Screen page, const char* way_back, const Canvas& canvas) {
  const auto room = static_cast<std::size_t>(std::max(1, canvas.height - 1));
  page.resize(room);
  page.push_back(reversed({{way_back}}, canvas.terminal.width, canvas.terminal));
  return page;
}

struct KeyHelp {
  const char *keys, *what;
};
constexpr KeyHelp kKeys[] = {{"q, Ctrl-C", "quit"},
                             {"h, ?", "this page"},
                             {"s", "next order: memory, GPU, ..."},
                             {"m g u a p", "by memory, GPU, user, age, PID"},
                             {"r", "reverse the order"},
                             {"/", "filter; Esc clears it"},
                             {"Ctrl-Z", "suspend"},
                             {"up, down", "select a process (also k, j)"},
                             {"PgUp, PgDn", "ten further"},
                             {"Home, End", "the first, the last"},
                             {"Tab", "select among the GPUs, and back"},
                             {"Enter", "details of the selected process"},
                             {"e", "end it, if it is idle"},
                             {"Ctrl-L", "draw again"}};
constexpr std::size_t kCount = std::size(kKeys);

// In two columns if there is room.
void add_keys(Screen& page, const Canvas& canvas) {
  const auto text_of_key = [&](std::size_t i) {
    return " " + in_cells(kKeys[i].keys, 11, canvas.terminal) + kKeys[i].what;
  };
  const bool is_wide = canvas.terminal.width >= 88;
  const std::size_t lines = is_wide ? kCount / 2 : kCount;
  for (std::size_t i = 0; i < lines; ++i)
    page.push_back({{in_cells(text_of_key(i), 44, canvas.terminal) +
                     (is_wide ? text_of_key(lines + i) : "")}});
}

}  // namespace

Screen help_page(const Canvas& canvas) {
  Screen page{{{"headroom top: keys", Colour::bold}}};
  add_keys(page, canvas);
  page.push_back({});
  const std::string notes[] = {
      "e ends a process by the rules of headroom clean --end, after you confirm: it must be yours, "
      "have shown no GPU activity and no CPU progress for 10 s, and its parent job must be gone.",
      "G is GiB, M is MiB, ? is unknown. Used memory counts the driver's own. Usable is what a new "
      "job can be given now: free memory without what leases reserve. Load is the share of the "
      "time in which the card computed anything.",
      "Below a training of yours by headroom train: its step, loss and plan."};
  for (const std::string& note : notes)
    add_text(page, wrapped(note, " ", " ", canvas.terminal.width - 1));
  return on_the_screen(std::move(page), " Esc back", canvas);
}

Screen details_page(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  const ProcessRow& row = *controls.to_end;
  const auto now = std::find_if(
      picture.processes.begin(), picture.processes.end(),
      [&](const ProcessRow& one) { return one.process == row.process && one.uuid == row.uuid; });
  const bool is_there = now != picture.processes.end();
  const ProcessRow& shown = is_there ? *now : row;
  Screen page{{{"PID " + std::to_string(row.process->pid), Colour::bold}}};
  page.push_back({});
  add_field(page, "user", shown.user, canvas);
  add_field(page, "command", shown.command, canvas);
  add_field(page, "memory",
            !is_there    ? "it has left the card"
            : shown.used ? to_string(*shown.used) + " on GPU " + std::to_string(shown.card)
                         : "unknown",
            canvas);
  if (shown.started) add_field(page, "age", duration_text(picture.wall - *shown.started), canvas);
  add_field(page, "lease", shown.lease, canvas);
  if (shown.job) add_field(page, "training", job_text(*shown.job, canvas.terminal), canvas);
  add_field(page, "class", controls.explanation.kind, canvas);
  add_field(page, "why", controls.explanation.why, canvas);
  add_field(page, "do", controls.explanation.action, canvas);
  return on_the_screen(std::move(page), " Esc back   e end it, if it is idle", canvas);
}

}  // namespace headroom::cli
