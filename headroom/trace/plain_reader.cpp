#include "headroom/trace/plain_reader.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "headroom/trace/detail/fault.h"

namespace headroom::trace {
namespace {

constexpr std::size_t kPlainWindow = 2 * kLongestLine;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// One line, taken word by word.
struct Line {
  const char* at;
  const char* end;

  void skip_blanks() {
    while (at != end && is_blank(*at)) ++at;
  }
  // True if only blanks and a comment remain.
  bool is_over() {
    skip_blanks();
    return at == end || *at == '#';
  }
  bool take(std::uint64_t& number) {
    skip_blanks();
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || (after != end && !is_blank(*after) && *after != '#')) return false;
    at = after;
    return true;
  }
  // The text up to a comment, without blanks at its ends.
  std::string_view take_rest() {
    skip_blanks();
    std::string_view rest(at, static_cast<std::size_t>(end - at));
    rest = rest.substr(0, rest.find('#'));
    at += rest.size();
    while (!rest.empty() && is_blank(rest.back())) rest.remove_suffix(1);
    return rest;
  }
};

class PlainReader final : public Reader {
 public:
  explicit PlainReader(Input input) : input_(std::move(input)) {}

  bool next(Event& event) override {
    Line line{};
    while (take_line(line)) {
      if (line.is_over()) continue;
      read(line, event);
      return true;
    }
    return false;
  }

  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t position() const override { return input_.position() + taken_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return input_.size(); }

 private:
  bool take_line(Line& line);
  void show_more();
  void read(Line& line, Event& event);
  void read_allocation(Line& line, Event& event);
  std::uint64_t number(Line& line, const char* what);
  std::uint32_t stream(Line& line);
  Name settings_text(Line& line);
  [[noreturn]] void fault_at(const char* where, const std::string& expected) const;

  Input input_;
  std::string_view window_;  // of the input; the first `taken_` bytes are consumed
  std::size_t taken_ = 0;
  std::size_t line_begin_ = 0;  // in the window
  std::size_t line_end_ = 0;
  std::uint64_t line_number_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_{{0, 0}};
  std::size_t name_bytes_ = 0;
  About about_;
  Names names_;
};

void PlainReader::show_more() {
  input_.skip(std::exchange(taken_, 0));
  window_ = input_.peek(kPlainWindow);
}

bool PlainReader::take_line(Line& line) {
  const char* newline = nullptr;
  for (const bool fresh : {false, true}) {
    if (fresh) show_more();
    if (taken_ == window_.size()) continue;
    newline = static_cast<const char*>(
        std::memchr(window_.data() + taken_, '\n', window_.size() - taken_));
    if (newline != nullptr) break;
  }
  if (taken_ == window_.size()) return false;
  const char* begin = window_.data() + taken_;
  const char* end = newline != nullptr ? newline : window_.data() + window_.size();
  ++line_number_;
  line_begin_ = taken_;
  line_end_ = static_cast<std::size_t>(end - window_.data());
  if (line_end_ - line_begin_ > kLongestLine)
    fault_at(begin, "a line of at most " + std::to_string(kLongestLine) + " bytes");
  taken_ = line_end_ + (newline != nullptr ? 1 : 0);
  if (end != begin && end[-1] == '\r') --end;
  line = {begin, end};
  return true;
}

void PlainReader::read(Line& line, Event& event) {
  const char* const letter = line.at;
  const bool is_one_letter = ++line.at == line.end || is_blank(*line.at) || *line.at == '#';
  event = Event{};
  switch (is_one_letter ? *letter : '\0') {
    case 'a':
      read_allocation(line, event);
      break;
    case 'f':
      event.kind = Kind::free_requested;
      event.address = number(line, "the ID that is freed");
      break;
    case 'r':
      event.kind = Kind::record_stream;
      event.address = number(line, "the ID");
      if (line.is_over()) fault_at(line.at, "the stream that uses it");
      event.stream = stream(line);
      break;
    case 'y':
      event.kind = Kind::complete_events;
      event.stream = line.is_over() ? kAllStreams : stream(line);
      break;
    case 'e':
      event.kind = Kind::empty_cache;
      break;
    case 'P':
      event.kind = Kind::reset_peaks;
      break;
    case 'c':
      event.kind = Kind::settings;
      event.operation = settings_text(line);
      break;
    case 'B':
    case 'E':
    case 'R':
      event.kind = *letter == 'B'   ? Kind::begin_pool
                   : *letter == 'E' ? Kind::end_pool
                                    : Kind::release_pool;
      event.address = number(line, "the pool");
      break;
    default:
      fault_at(letter, "one of the events a, f, r, y, e, P, c, B, E, R");
  }
  if (!line.is_over()) fault_at(line.at, "the end of the line");
}

void PlainReader::read_allocation(Line& line, Event& event) {
  event.kind = Kind::alloc;
  event.address = number(line, "the ID");
  line.skip_blanks();
  const char* const where = line.at;
  const std::uint64_t bytes = number(line, "the bytes");
  if (bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    fault_at(where, "fewer than 2^63 bytes");
  event.bytes = Bytes{static_cast<std::int64_t>(bytes)};
  event.stream = line.is_over() ? 0 : stream(line);
}

std::uint64_t PlainReader::number(Line& line, const char* what) {
  std::uint64_t value = 0;
  if (!line.take(value)) fault_at(line.at, std::string(what) + ", a plain number");
  return value;
}

std::uint32_t PlainReader::stream(Line& line) {
  const std::uint64_t named = number(line, "the stream");
  if (named == 0) return 0;
  const auto [found, is_new] = streams_.try_emplace(named, streams_.size());
  if (is_new && streams_.size() > detail::kMostStreams)
    fault_at(line.at, "at most " + std::to_string(detail::kMostStreams) + " streams");
  return found->second;
}

Name PlainReader::settings_text(Line& line) {
  const std::string_view text = line.take_rest();
  const std::size_t before = names_.size();
  const Name name = names_.number(text);
  if (names_.size() > before) name_bytes_ += text.size();
  if (names_.size() > detail::kMostNames || name_bytes_ > detail::kMostNameBytes)
    fault_at(line.at, "fewer different settings");
  return name;
}

void PlainReader::fault_at(const char* where, const std::string& expected) const {
  const auto offset = static_cast<std::uint64_t>(where - window_.data());
  const std::string_view text = window_.substr(line_begin_, line_end_ - line_begin_);
  detail::fault(input_.name() + ", line " + std::to_string(line_number_),
                input_.position() + offset, expected, detail::shown(text),
                "the form of docs/formats/plain-events.md");
}

}  // namespace

std::unique_ptr<Reader> read_plain(Input input) {
  return std::make_unique<PlainReader>(std::move(input));
}

}  // namespace headroom::trace
