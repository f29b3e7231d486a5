// The choices made with the keys of `headroom top`, and the effect of each key. Needs no terminal:
// a test presses keys and looks at the values.
//
//   Controls controls;
//   if (press(controls, {Key::Kind::text, "q"}, picture) == Request::quit) return;
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/cli/core/top/picture.h"

namespace headroom::cli {

struct Key {
  enum class Kind {
    text,  // a character
    enter,
    escape,
    backspace,
    tab,
    up,
    down,
    page_up,
    page_down,
    home,
    end,
    redraw,  // Ctrl-L
  };
  Kind kind = Kind::text;
  std::string text = {};  // one character in UTF-8
};

enum class SortBy { memory, card, user, age, pid };
[[nodiscard]] const char* to_string(SortBy order);

// A request that only the command can fulfil.
enum class Request {
  none,
  quit,
  redraw,   // draw every cell again: another program wrote on the screen
  explain,  // fill in `explanation` of the selected process
  ask,      // see whether the selected process may be ended; if so, typing = yes
  end,      // the user typed yes: end `to_end`
};

struct Explanation {
  std::string kind, why, action;  // as `headroom clean` says it
};

struct Controls {
  enum class Page { machine, details, help };
  enum class Typing { nothing, filter, yes };

  Page page = Page::machine;
  Typing typing = Typing::nothing;
  SortBy sort_by = SortBy::memory;
  bool is_reversed = false;
  std::string filter;  // words that must all occur in a row
  std::string typed;   // the answer to `typing` == yes
  bool is_on_cards = false;
  std::size_t card = 0;  // the selected one, a position
  // The selected process, and its position when it was last seen.
  std::optional<std::pair<ProcessIdentity, gpu::Uuid>> selected;
  std::size_t row = 0;
  std::optional<ProcessRow> to_end;
  Explanation explanation;
  std::string message;  // until the next key
};

Request press(Controls& controls, const Key& key, const Picture& picture);

// The rows that pass the filter, in order.
[[nodiscard]] std::vector<ProcessRow> shown_rows(const Picture& picture, const Controls& controls);
// The position of the selected one among them; 0 if there are none.
[[nodiscard]] std::size_t selected_row(const std::vector<ProcessRow>& rows,
                                       const Controls& controls);

}  // namespace headroom::cli
