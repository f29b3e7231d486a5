#include "headroom/edit/detail/document_events.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/base/json.h"

namespace headroom::edit::detail {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// ---- YAML ----

class Collector : public YAML::EventHandler {
 public:
  explicit Collector(std::size_t offset) : offset_(offset) {}
  std::vector<Event> events;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(Event::null, mark, {}, {}, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(Event::alias, mark, {}, {}, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    add(Event::scalar, mark, value, tag, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    add(Event::list, mark, {}, tag, anchor, style == YAML::EmitterStyle::Flow);
  }
  void OnSequenceEnd() override { events.push_back({.kind = Event::list_end}); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    add(Event::map, mark, {}, tag, anchor, style == YAML::EmitterStyle::Flow);
  }
  void OnMapEnd() override { events.push_back({.kind = Event::map_end}); }

 private:
  void add(Event::Kind kind, const YAML::Mark& mark, const std::string& text,
           const std::string& tag, YAML::anchor_t anchor, bool flow = false) {
    events.push_back({.kind = kind,
                      .at = static_cast<std::size_t>(std::max(mark.pos, 0)) + offset_,
                      .text = text,
                      .tag = tag,
                      .anchor = anchor,
                      .flow = flow});
  }
  std::size_t offset_;
};

// Refuses characters that YAML readers treat differently or that end the text for some of them.
void check_characters(const std::string& text, const std::string& source) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool line_end = c == '\n' || (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
    if (c >= ' ' || c == '\t' || line_end) continue;
    throw InputError(expectation("--map", "text in " + source,
                                 "a control character at byte " + std::to_string(i)));
  }
}

std::vector<Event> read_yaml(const std::string& text, const std::string& source) {
  check_characters(text, source);
  const std::size_t offset = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  std::istringstream stream(text.substr(offset));
  Collector first(offset), more(offset);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(first)) return {};
    if (!parser.HandleNextDocument(more)) return std::move(first.events);
  } catch (const YAML::Exception& error) {
    throw InputError(expectation("--map", "YAML in " + source, error.what()));
  }
  throw UsageError(
      expectation("--map", "one document in " + source, "several", "a file with one document"));
}

// ---- JSON: already validated, so splitting it into parts is enough ----

class JsonScanner {
 public:
  explicit JsonScanner(const std::string& text) : text_(text) {}

  std::vector<Event> run() {
    if (text_.starts_with(kByteOrderMark)) next_ = kByteOrderMark.size();
    while (next_ < text_.size()) step();
    return std::move(events_);
  }

 private:
  void step() {
    const std::size_t at = next_;
    switch (text_[next_++]) {
      case '{':
        return add(Event::map, at);
      case '}':
        return add(Event::map_end, at);
      case '[':
        return add(Event::list, at);
      case ']':
        return add(Event::list_end, at);
      case '"':
        return add_string(at);
      case ' ':
      case '\t':
      case '\r':
      case '\n':
      case ',':
      case ':':
        return;
      default:
        return add_plain(at);
    }
  }
  void add_string(std::size_t at) {
    while (text_[next_] != '"') next_ += text_[next_] == '\\' ? 2 : 1;
    ++next_;
    const auto value = nlohmann::json::parse(text_.substr(at, next_ - at), nullptr, false);
    add(Event::scalar, at, value.is_string() ? value.get<std::string>() : "", "!");
  }
  void add_plain(std::size_t at) {
    next_ = std::min(text_.find_first_of(",]} \t\r\n", next_), text_.size());
    const std::string word = text_.substr(at, next_ - at);
    add(word == "null" ? Event::null : Event::scalar, at, word, "?");
  }
  void add(Event::Kind kind, std::size_t at, const std::string& text = {},
           const std::string& tag = {}) {
    events_.push_back({.kind = kind, .at = at, .text = text, .tag = tag, .flow = true});
  }

  const std::string& text_;
  std::size_t next_ = 0;
  std::vector<Event> events_;
};

bool is_json(const std::string& source) {
  return source.ends_with(".json") || source.ends_with(".JSON");
}

}  // namespace

std::vector<Event> read_events(const std::string& text, const std::string& source) {
  if (is_json(source) || nlohmann::json::accept(text)) {
    if (!nlohmann::json::accept(text)) (void)parse_json(text, source);  // reports the error
    return JsonScanner(text).run();
  }
  return read_yaml(text, source);
}

}  // namespace headroom::edit::detail
