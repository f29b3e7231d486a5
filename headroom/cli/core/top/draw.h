// Draws the screen of `headroom top`: a pure function of the picture, the user's choices and the
// terminal's size.
//
// Up to the height all lines are used: the title, the cards, the processes, the queue, one line of
// advice, and the keys. Where there is too little room, cards and processes scroll around the
// selected one. 60 columns are enough for all figures of a card but its power and its graphs.
#pragma once

#include "headroom/cli/core/top/controls.h"
#include "headroom/cli/core/top/picture.h"
#include "headroom/cli/core/top/screen.h"

namespace headroom::cli {

struct Canvas {
  Terminal terminal;  // its width and characters
  int height = 0;     // 0: as many lines as there are, without selection and keys (`--once`)
  Clock::time_point now = Clock::now();
  [[nodiscard]] bool is_endless() const { return height == 0; }
};

[[nodiscard]] Screen draw(const Picture& picture, const Controls& controls, const Canvas& canvas);

// Parts of it, in files of their own. Each begins with a line of titles.
struct Pane {
  Screen lines;  // without the titles
  std::string titles;
  // The column where titles give way to "1-7/16"; std::nullopt: at the end of the line.
  std::optional<int> numbers_at = {};
  std::vector<int> row_of = {};  // of each line, the row that it belongs to
  std::size_t selected = 0;      // a position in `lines`
};
[[nodiscard]] Pane card_pane(const Picture& picture, const Controls& controls,
                             const Canvas& canvas);
[[nodiscard]] Pane process_pane(const Picture& picture, const Controls& controls,
                                const Canvas& canvas);
[[nodiscard]] Screen help_page(const Canvas& canvas);
[[nodiscard]] Screen details_page(const Picture& picture, const Controls& controls,
                                  const Canvas& canvas);
[[nodiscard]] std::string job_text(const watch::JobStatus& job, const Terminal& terminal);

}  // namespace headroom::cli
