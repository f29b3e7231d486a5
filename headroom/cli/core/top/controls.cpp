#include "headroom/cli/core/top/controls.h"

#include <algorithm>
#include <array>

#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

constexpr std::size_t kPage = 10;  // rows that a page key moves
constexpr int kOrders = 5;

std::string searched_text(const ProcessRow& row) {
  std::string text =
      row.user + " " + row.command + " gpu" + std::to_string(row.card) + " " + row.lease;
  if (row.process) text += " " + std::to_string(row.process->pid);
  if (row.job) text += " " + row.job->what + " " + row.job->plan;
  return lower(text);
}

bool passes(const ProcessRow& row, const std::string& filter) {
  const std::string text = searched_text(row), words = lower(filter);
  for (const std::string_view word : split(words, ' '))
    if (text.find(word) == std::string::npos) return false;
  return true;
}

// Less means further up.
int compare(const ProcessRow& a, const ProcessRow& b, SortBy order) {
  const auto three_way = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  switch (order) {
    case SortBy::memory:
      return three_way(b.used.value_or(Bytes{-1}), a.used.value_or(Bytes{-1}));
    case SortBy::card:
      return three_way(std::pair(a.card, a.uuid), std::pair(b.card, b.uuid));
    case SortBy::user:
      return three_way(a.user, b.user);
    case SortBy::age:  // unknown values come last
      return three_way(a.started.value_or(WallTime::max()), b.started.value_or(WallTime::max()));
    case SortBy::pid:
      return three_way(a.process ? a.process->pid : 0, b.process ? b.process->pid : 0);
  }
  return 0;
}

std::optional<std::pair<ProcessIdentity, gpu::Uuid>> name_of(const ProcessRow& row) {
  if (!row.process) return {};
  return std::pair(*row.process, row.uuid);
}

void select(Controls& controls, const std::vector<ProcessRow>& rows, std::size_t row) {
  controls.row = rows.empty() ? 0 : std::min(row, rows.size() - 1);
  controls.selected = rows.empty() ? std::nullopt : name_of(rows[controls.row]);
}

std::size_t moved(std::size_t at, std::size_t count, const Key& key) {
  const std::size_t last = count == 0 ? 0 : count - 1;
  switch (key.kind) {
    case Key::Kind::up:
      return at == 0 ? 0 : at - 1;
    case Key::Kind::down:
      return std::min(at + 1, last);
    case Key::Kind::page_up:
      return at < kPage ? 0 : at - kPage;
    case Key::Kind::page_down:
      return std::min(at + kPage, last);
    case Key::Kind::home:
      return 0;
    default:
      return last;
  }
}

void move(Controls& controls, const Picture& picture, const Key& key) {
  if (controls.is_on_cards) {
    controls.card = moved(controls.card, picture.machine.cards.size(), key);
    return;
  }
  const auto rows = shown_rows(picture, controls);
  select(controls, rows, moved(selected_row(rows, controls), rows.size(), key));
}

// ---- Typing ----

void delete_character(std::string& text) {
  while (!text.empty() && !begins_character(text.back())) text.pop_back();
  if (!text.empty()) text.pop_back();
}

void type_filter(Controls& controls, const Key& key) {
  if (key.kind == Key::Kind::text) controls.filter += key.text;
  if (key.kind == Key::Kind::backspace) delete_character(controls.filter);
  if (key.kind == Key::Kind::escape) controls.filter.clear();
  if (key.kind == Key::Kind::escape || key.kind == Key::Kind::enter)
    controls.typing = Controls::Typing::nothing;
}

Request type_answer(Controls& controls, const Key& key) {
  if (key.kind == Key::Kind::text) controls.typed += key.text;
  if (key.kind == Key::Kind::backspace) delete_character(controls.typed);
  if (key.kind != Key::Kind::escape && key.kind != Key::Kind::enter) return Request::none;
  controls.typing = Controls::Typing::nothing;
  if (key.kind == Key::Kind::enter && controls.typed == "yes") return Request::end;
  controls.message = "PID " + std::to_string(controls.to_end->process->pid) + " is left alone";
  return Request::none;
}

// ---- The pages ----

// With the selected process in `to_end`.
Request ask_about_selected(Controls& controls, const Picture& picture, Request request) {
  const auto rows = shown_rows(picture, controls);
  controls.to_end.reset();
  if (!rows.empty()) controls.to_end = rows[selected_row(rows, controls)];
  if (controls.to_end && controls.to_end->process) return request;
  controls.message = rows.empty() ? "there is no process to select"
                                  : "this memory has no process that is visible from here";
  return Request::none;
}

Request close_page(Controls& controls, const Key& key, const Picture& picture) {
  const bool closes =
      key.kind == Key::Kind::escape || key.kind == Key::Kind::enter ||
      (key.kind == Key::Kind::text && (key.text == "q" || key.text == "h" || key.text == "?"));
  const bool is_on_details = controls.page == Controls::Page::details;
  if (is_on_details && key.text == "e") return ask_about_selected(controls, picture, Request::ask);
  if (closes) controls.page = Controls::Page::machine;
  return Request::none;
}

void sort_by(Controls& controls, SortBy order) {
  controls.is_reversed = controls.sort_by == order && !controls.is_reversed;
  controls.sort_by = order;
}

Request press_letter(Controls& controls, char letter, const Picture& picture) {
  switch (letter) {
    case 'q':
      return Request::quit;
    case 'h':
    case '?':
      controls.page = Controls::Page::help;
      return Request::none;
    case 's':
      controls.sort_by = static_cast<SortBy>((static_cast<int>(controls.sort_by) + 1) % kOrders);
      controls.is_reversed = false;
      return Request::none;
    case 'm':
      return sort_by(controls, SortBy::memory), Request::none;
    case 'g':
      return sort_by(controls, SortBy::card), Request::none;
    case 'u':
      return sort_by(controls, SortBy::user), Request::none;
    case 'a':
      return sort_by(controls, SortBy::age), Request::none;
    case 'p':
      return sort_by(controls, SortBy::pid), Request::none;
    case 'r':
      controls.is_reversed = !controls.is_reversed;
      return Request::none;
    case '/':
      controls.typing = Controls::Typing::filter;
      return Request::none;
    case 'j':
      return move(controls, picture, {Key::Kind::down}), Request::none;
    case 'k':
      return move(controls, picture, {Key::Kind::up}), Request::none;
    case 'e':
      return ask_about_selected(controls, picture, Request::ask);
    default:
      return Request::none;
  }
}

Request press_on_machine(Controls& controls, const Key& key, const Picture& picture) {
  switch (key.kind) {
    case Key::Kind::text:
      return press_letter(controls, key.text.empty() ? '\0' : key.text[0], picture);
    case Key::Kind::enter: {
      const Request request = ask_about_selected(controls, picture, Request::explain);
      if (request == Request::explain) controls.page = Controls::Page::details;
      return request;
    }
    case Key::Kind::escape:
      controls.filter.clear();
      return Request::none;
    case Key::Kind::tab:
      controls.is_on_cards = !controls.is_on_cards;
      return Request::none;
    case Key::Kind::backspace:
      return Request::none;
    default:
      move(controls, picture, key);
      return Request::none;
  }
}

}  // namespace

const char* to_string(SortBy order) {
  static constexpr std::array<const char*, kOrders> kNames{"memory", "GPU", "user", "age", "PID"};
  return kNames.at(static_cast<std::size_t>(order));
}

Request press(Controls& controls, const Key& key, const Picture& picture) {
  controls.message.clear();
  if (key.kind == Key::Kind::redraw) return Request::redraw;
  if (controls.typing == Controls::Typing::filter) return type_filter(controls, key), Request::none;
  if (controls.typing == Controls::Typing::yes) return type_answer(controls, key);
  if (controls.page != Controls::Page::machine) return close_page(controls, key, picture);
  return press_on_machine(controls, key, picture);
}

std::vector<ProcessRow> shown_rows(const Picture& picture, const Controls& controls) {
  std::vector<ProcessRow> rows;
  for (const ProcessRow& row : picture.processes)
    if (passes(row, controls.filter)) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [&](const ProcessRow& a, const ProcessRow& b) {
    const int order = compare(a, b, controls.sort_by);
    if (order != 0) return controls.is_reversed ? order > 0 : order < 0;
    return compare(a, b, SortBy::card) < 0;
  });
  return rows;
}

std::size_t selected_row(const std::vector<ProcessRow>& rows, const Controls& controls) {
  if (controls.selected)
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (name_of(rows[i]) == controls.selected) return i;
  return rows.empty() ? 0 : std::min(controls.row, rows.size() - 1);
}

}  // namespace headroom::cli
