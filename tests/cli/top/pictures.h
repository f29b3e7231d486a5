// Pictures of machines as `headroom top` draws them, and the text of what it draws.
#pragma once

#include <string>
#include <vector>

#include "headroom/cli/core/top/draw.h"
#include "tests/gpu/fixtures/cards.h"

namespace headroom::cli::fixtures {

using namespace headroom::literals;

inline ProcessRow row(int card, pid_t pid, Bytes used, std::string user = "alice",
                      std::string command = "python train.py") {
  ProcessRow row{.card = card, .uuid = gpu::fixtures::numbered(card)};
  row.process = ProcessIdentity{pid, pid};
  row.user = std::move(user);
  row.command = std::move(command);
  row.used = used;
  return row;
}

// Cards at work, with every figure known.
inline gpu::Card busy_card(int index) {
  gpu::Card card = gpu::fixtures::card(index, 12_GiB);
  card.utilization = 98;
  card.temperature_c = 61;
  card.power_w = 231;
  return card;
}

inline Picture picture_of(int cards, std::vector<ProcessRow> rows = {}) {
  Picture picture;
  for (int i = 0; i < cards; ++i) picture.machine.cards.push_back(busy_card(i));
  picture.machine.driver = "580.65.06";
  picture.processes = std::move(rows);
  picture.taken = Clock::now();
  picture.wall = std::chrono::system_clock::now();
  picture.history.add(picture.machine, picture.taken);
  return picture;
}

// Forty processes on sixteen cards, with 100 MiB, 200 MiB, ...
inline Picture big_picture() {
  std::vector<ProcessRow> rows;
  for (int i = 1; i <= 40; ++i) rows.push_back(row(i % 16, 1000 + i, i * 100_MiB));
  return picture_of(16, std::move(rows));
}

inline Canvas canvas(int width, int height, bool unicode = true) {
  return {.terminal = {.is_terminal = true,
                       .colour = true,
                       .unicode = unicode,
                       .width = width,
                       .has_width = true},
          .height = height,
          .now = Clock::now()};
}

inline std::vector<std::string> texts(const Screen& screen) {
  std::vector<std::string> lines;
  for (const Line& line : screen) {
    lines.push_back(text_of(line));
    lines.back().erase(lines.back().find_last_not_of(' ') + 1);
  }
  return lines;
}

inline std::string whole(const Screen& screen) {
  std::string all;
  for (const std::string& line : texts(screen)) all += line + "\n";
  return all;
}

// The line with this text; empty: none.
inline Line line_with(const Screen& screen, const std::string& text) {
  for (const Line& line : screen)
    if (text_of(line).find(text) != std::string::npos) return line;
  return {};
}

inline bool is_selected(const Line& line) {
  return !line.empty() && line[0].reverse;
}

inline Key letter(const char* text) {
  return {Key::Kind::text, text};
}

}  // namespace headroom::cli::fixtures
