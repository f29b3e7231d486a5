#include "headroom/edit/detail/document.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/edit/detail/document_events.h"

namespace headroom::edit::detail {
namespace {

class Finder {
 public:
  Finder(const std::string& text, const std::string& source, const std::string& keys)
      : text_(text), source_(source), keys_(keys), events_(read_events(text, source)) {
    for (const std::string_view part : split(keys, '.')) parts_.emplace_back(part);
  }

  Slot run(bool may_be_missing) {
    if (events_.empty()) refuse("an empty file");
    find(0, 0, false);
    if (found_.size() > 1) refuse("two places that match");
    if (found_.empty() && may_be_missing) return missing();
    if (found_.empty()) refuse_missing();
    const Event& value = events_[found_[0].event];
    if (value.kind == Event::alias || found_[0].shared)
      refuse("a value that other places refer to (an anchor); give it one of its own");
    if (value.kind != Event::scalar) refuse("no single value");
    return checked(slot_of(value), found_[0].event);
  }

 private:
  struct Found {
    std::size_t event;
    bool shared;  // inside a node that an alias refers to
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError("[--map] expected a whole number at " + keys_ + " in " + source_ +
                     " that can be changed alone, received " + what);
  }
  [[noreturn]] void refuse_missing() const {
    if (behind_alias_)
      refuse("an alias on the way to it (*); try the place that the alias refers to (&)");
    const bool may_be_merged =
        merges_ && std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
          return event.kind == Event::scalar && event.text == parts_.back();
        });
    std::string to_try = may_be_merged ? "the place that it is merged from (<<)" : "";
    if (const auto meant = nearest(parts_.back(), names_); meant && to_try.empty())
      to_try = "the key '" + *meant + "'";
    throw UsageError(
        expectation("--map", "the key " + keys_ + " in " + source_, "a file without it", to_try));
  }

  // ---- Its place ----

  // The event after the node that begins here.
  [[nodiscard]] std::size_t behind(std::size_t node) const {
    std::size_t depth = 0;
    do {
      const Event::Kind kind = events_[node].kind;
      if (kind == Event::map || kind == Event::list) ++depth;
      if (kind == Event::map_end || kind == Event::list_end) --depth;
      ++node;
    } while (depth > 0);
    return node;
  }
  [[nodiscard]] bool is_shared(const Event& event) const {
    return event.anchor != 0 &&
           std::any_of(events_.begin(), events_.end(), [&](const Event& other) {
             return other.kind == Event::alias && other.anchor == event.anchor;
           });
  }
  [[nodiscard]] std::string parts_joined(std::size_t from, std::size_t to) const {
    return join({parts_.begin() + static_cast<std::ptrdiff_t>(from),
                 parts_.begin() + static_cast<std::ptrdiff_t>(to)},
                ".");
  }

  void find(std::size_t node, std::size_t part, bool shared) {
    const Event& event = events_[node];
    shared = shared || is_shared(event);
    if (part == parts_.size()) return found_.push_back({node, shared});
    if (event.kind == Event::alias) behind_alias_ = true;
    if (event.kind == Event::list) find_in_list(node, part, shared);
    if (event.kind == Event::map) find_in_map(node, part, shared);
  }
  void find_in_list(std::size_t list, std::size_t part, bool shared) {
    const auto wanted = to_integer(parts_[part]);
    long long index = 0;
    for (std::size_t i = list + 1; events_[i].kind != Event::list_end; i = behind(i), ++index) {
      if (wanted == index) return find(i, part + 1, shared);
    }
  }
  // A key may contain dots.
  void find_in_map(std::size_t map, std::size_t part, bool shared) {
    const bool last = part + 1 == parts_.size();
    if (last) parents_.push_back({map, shared});
    for (std::size_t key = map + 1; events_[key].kind != Event::map_end;) {
      const std::size_t value = behind(key);
      if (events_[key].kind == Event::scalar) {
        if (last) names_.push_back(events_[key].text);
        if (events_[key].text == "<<") merges_ = true;
        for (std::size_t to = part + 1; to <= parts_.size(); ++to)
          if (events_[key].text == parts_joined(part, to)) find(value, to, shared);
      }
      key = behind(value);
    }
  }

  // ---- Its characters ----

  // Skips an anchor and a tag, which stand before their node on the same line.
  [[nodiscard]] std::size_t behind_properties(std::size_t at) const {
    while (at < text_.size() && (text_[at] == '&' || text_[at] == '!'))
      at = text_.find_first_not_of(' ', std::min(text_.find_first_of(" \n", at), text_.size()));
    return at;
  }

  [[nodiscard]] Slot slot_of(const Event& value) const {
    const bool digits = !value.text.empty() && value.text.size() <= 10 &&
                        value.text.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || value.text[0] == '0') refuse("'" + value.text + "'");
    std::size_t at = behind_properties(value.at);
    if (at < text_.size() && (text_[at] == '"' || text_[at] == '\'')) ++at;
    if (at >= text_.size() || text_.compare(at, value.text.size(), value.text) != 0)
      refuse("a value in another notation");
    return {.at = at,
            .length = value.text.size(),
            .before = {},
            .after = {},
            .value = to_integer(value.text)};
  }

  // ---- A place to insert it ----

  [[nodiscard]] Slot missing() const {
    const bool unsure = merges_ || parents_.size() != 1 || parents_[0].shared;
    if (unsure) refuse_missing();
    const Event& parent = events_[parents_[0].event];
    const Event& first = events_[parents_[0].event + 1];
    const std::string key = written_key(parent) + ": ";
    if (first.kind == Event::map_end) {
      const std::size_t brace = behind_properties(parent.at);
      return checked({.at = brace + 1, .length = 0, .before = key, .after = {}, .value = {}},
                     parents_[0].event);
    }
    return checked({.at = first.at,
                    .length = 0,
                    .before = key,
                    .after = separator(parent, first.at),
                    .value = {}},
                   parents_[0].event);
  }
  // Quoted in JSON, and where YAML would read the word as a value.
  [[nodiscard]] std::string written_key(const Event& parent) const {
    const std::string& key = parts_.back();
    constexpr std::string_view kMeaningful = " y n yes no on off true false null ";
    const bool plain = !key.empty() && std::isalpha(static_cast<unsigned char>(key[0])) != 0 &&
                       std::all_of(key.begin(), key.end(), [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '_' || c == '-';
                       });
    const bool word = kMeaningful.find(" " + lower(key) + " ") != std::string_view::npos;
    const bool json = parent.flow && parent.tag.empty();
    return plain && !word && !json ? key : "\"" + key + "\"";
  }
  // In braces each key may have its own line, too.
  [[nodiscard]] std::string separator(const Event& parent, std::size_t at) const {
    if (!parent.flow) return line_before(at);
    const std::size_t blanks = at == 0 ? at : text_.find_last_not_of(' ', at - 1);
    const bool own_line = blanks != std::string::npos && text_[blanks] == '\n';
    return own_line ? "," + line_before(at) : ", ";
  }
  // A line break and blanks up to the column of `at`.
  [[nodiscard]] std::string line_before(std::size_t at) const {
    const std::size_t line = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
    std::size_t column = line == std::string::npos ? at : at - line - 1;
    if (line == std::string::npos && text_.starts_with("\xef\xbb\xbf")) column -= 3;
    const bool windows = text_.find("\r\n") != std::string::npos;
    return (windows ? "\r\n" : "\n") + std::string(column, ' ');
  }

  // ---- Proof: parsed again, only this value differs ----

  [[nodiscard]] Slot checked(const Slot& slot, std::size_t event) const {
    const long long other = slot.value.value_or(1) + 1;
    std::string text = text_;
    text.replace(slot.at, slot.length, slot.with(other));
    std::vector<Event> expected = events_;
    if (slot.value) {
      expected[event].text = std::to_string(other);
    } else {
      const std::string tag = slot.before.starts_with('"') ? "!" : "?";
      const auto place = expected.begin() + static_cast<std::ptrdiff_t>(event) + 1;
      expected.insert(place, {scalar(parts_.back(), tag), scalar(std::to_string(other), "?")});
    }
    if (read_again(text) != expected) refuse("a place that cannot be changed safely");
    return slot;
  }
  [[nodiscard]] Event scalar(const std::string& text, const std::string& tag) const {
    const bool json = events_[0].flow && events_[0].tag.empty();
    return {.kind = Event::scalar, .text = text, .tag = tag, .flow = json};
  }
  [[nodiscard]] std::vector<Event> read_again(const std::string& text) const {
    try {
      return read_events(text, source_);
    } catch (const Error&) {
      return {};
    }
  }

  const std::string& text_;
  const std::string& source_;
  const std::string& keys_;
  std::vector<Event> events_;
  std::vector<std::string> parts_;
  std::vector<Found> found_;
  std::vector<Found> parents_;      // the maps that could hold the last key
  std::vector<std::string> names_;  // keys of these maps
  bool merges_ = false;
  bool behind_alias_ = false;
};

}  // namespace

Slot find_slot(const std::string& text, const std::string& source, const std::string& keys,
               bool may_be_missing) {
  return Finder(text, source, keys).run(may_be_missing);
}

}  // namespace headroom::edit::detail
