#include "headroom/trace/file_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/json.h"
#include "headroom/trace/detail/columns.h"
#include "headroom/trace/detail/file_form.h"
#include "headroom/trace/detail/zstd_frame.h"

namespace headroom::trace {
namespace {

using detail::PartHeader;
using detail::Prefix;

constexpr std::string_view kTryAgain = "an undamaged copy of the file";

bool is_zeros(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

class FileReader final : public Reader {
 public:
  explicit FileReader(Input input) : input_(std::move(input)) { read_head(); }

  bool next(Event& event) override {
    while (at_ == events_.size())
      if (!read_part()) return false;
    event = events_[at_++];
    return true;
  }

  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t cut_off() const override { return cut_off_; }
  [[nodiscard]] std::uint64_t position() const override { return input_.position(); }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return input_.size(); }

 private:
  void read_head();
  void read_about(std::string_view text);
  [[noreturn]] void refuse_version(const Prefix& prefix, const std::string& head);
  bool read_part();
  std::optional<PartHeader> take_header();
  bool take_raw(const PartHeader& header);
  void read_names(detail::Cursor& cursor);
  bool end_cut_off(std::size_t bytes);
  bool ends_in_zeros(std::string_view damaged);
  [[noreturn]] void fault(const std::string& expected, const std::string& received,
                          std::string_view to_try = kTryAgain) const;

  Input input_;
  detail::Decompressor decompressor_;
  About about_;
  Names names_;
  std::size_t name_bytes_ = 0;
  std::uint64_t part_begin_ = 0;  // its offset in the file, for messages
  std::string raw_;
  std::vector<Event> events_;  // of the current part
  std::size_t at_ = 0;
  std::uint64_t cut_off_ = 0;
};

void FileReader::fault(const std::string& expected, const std::string& received,
                       std::string_view to_try) const {
  detail::fault(input_.name(), part_begin_, expected, received, to_try);
}

void FileReader::read_head() {
  const std::string_view begin = input_.peek(Prefix::kSize);
  const auto prefix = detail::prefix_of(begin);
  if (!prefix) fault("the beginning of a Headroom trace", detail::shown(begin));
  input_.skip(Prefix::kSize);
  part_begin_ = Prefix::kSize;
  const auto header = take_header();
  if (!header || !take_raw(*header))
    fault("a whole head", "the end of the file", "a complete copy of the file");
  // Prefix and head have the same form in all versions, so any version can report this.
  if (prefix->needs > detail::kFormatVersion) refuse_version(*prefix, raw_);
  if (header->tag != detail::kHeadTag) fault("a head", detail::shown(header->tag));
  read_about(raw_);
}

void FileReader::refuse_version(const Prefix& prefix, const std::string& head) {
  const Json json = Json::parse(head, nullptr, false);
  const bool is_named =
      json.is_object() && json.contains("written_by") && json["written_by"].is_string();
  const std::string writer = is_named ? json["written_by"].get<std::string>() : "a later Headroom";
  fault("format version " + std::to_string(detail::kFormatVersion) + " or older",
        "version " + std::to_string(prefix.version) + ", written by " + detail::shown(writer),
        detail::shown(writer) + " or later to read it");
}

void FileReader::read_about(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fault("a JSON object as head", detail::shown(text));
  about_.format = Format::headroom;
  try {
    about_.program = json.value("program", "");
    about_.settings = json.value("settings", "");
    about_.torch = json.value("torch", "");
    about_.times_are_known = json.value("times_are_known", false);
    if (const auto capacity = json.find("capacity_bytes");
        capacity != json.end() && !capacity->is_null())
      about_.capacity = bytes_from(*capacity);
    about_.is_within_capacity = json.value("within_capacity", true);
    for (const Json& fact : json.value("facts", Json::array()))
      about_.facts.emplace_back(fact.at(0).get<std::string>(), fact.at(1).get<std::string>());
  } catch (const Json::exception&) {
    fault("a head with values of the right types", detail::shown(text));
  }
  if (about_.capacity && *about_.capacity < Bytes{0})
    fault("a capacity in bytes", std::to_string(about_.capacity->count));
}

bool FileReader::end_cut_off(std::size_t bytes) {
  cut_off_ += bytes;
  input_.skip(bytes);
  return false;
}

// After a power cut a file may have its full length, with zeros in place of data. Leaving the zeros
// out loses no events.
bool FileReader::ends_in_zeros(std::string_view damaged) {
  if (damaged.size() < 4 || !is_zeros(damaged.substr(damaged.size() - 4))) return false;
  end_cut_off(damaged.size());
  for (std::string_view rest; !(rest = input_.peek(4096)).empty(); end_cut_off(rest.size()))
    if (!is_zeros(rest)) return false;
  return true;
}

// std::nullopt if the file ends within the header.
std::optional<PartHeader> FileReader::take_header() {
  const std::string_view bytes = input_.peek(PartHeader::kSize);
  if (bytes.size() < PartHeader::kSize) {
    end_cut_off(bytes.size());
    return {};
  }
  auto header = detail::part_header_of(bytes);
  if (!header) {
    const std::string seen = detail::shown(bytes);
    if (ends_in_zeros(bytes)) return {};
    fault("the header of a part", seen);
  }
  if (header->stored_bytes > detail::kMostStoredBytes ||
      header->raw_bytes > detail::kMostRawBytes || header->events > detail::kMostEvents)
    fault("a part within the limits", std::to_string(header->raw_bytes) + " bytes and " +
                                          std::to_string(header->events) + " events");
  return header;
}

// False if the file ends within the part.
bool FileReader::take_raw(const PartHeader& header) {
  const std::size_t size = PartHeader::kSize + header.stored_bytes;
  const std::string_view whole = input_.peek(size);
  if (whole.size() < size) return end_cut_off(whole.size());
  if (!decompressor_.decompress(whole.substr(PartHeader::kSize), header.raw_bytes, raw_)) {
    if (ends_in_zeros(whole)) return false;
    fault("a part without damage", std::to_string(size) + " bytes that fail their checksum");
  }
  input_.skip(size);
  return true;
}

bool FileReader::read_part() {
  part_begin_ = input_.position();
  events_.clear();
  at_ = 0;
  const auto header = take_header();
  if (!header || !take_raw(*header)) return false;
  if (header->tag != detail::kPartTag) fault("a part", detail::shown(header->tag));
  detail::Cursor cursor(raw_);
  read_names(cursor);
  events_.assign(header->events, Event{});
  const std::string expected = detail::read_columns(cursor.rest(), events_, names_.size());
  if (!expected.empty()) fault(expected, "something else");
  return true;
}

void FileReader::read_names(detail::Cursor& cursor) {
  std::uint64_t first = 0, count = 0;
  if (!cursor.take(first) || !cursor.take(count) || first != names_.size())
    fault("names from number " + std::to_string(names_.size()), std::to_string(first));
  for (; count > 0; --count) {
    std::uint64_t size = 0;
    std::string_view text;
    if (!cursor.take(size) || size > detail::kLongestName || !cursor.take(size, text))
      fault("a name within its part", std::to_string(size) + " bytes");
    name_bytes_ += size;
    if (names_.size() >= detail::kMostNames || name_bytes_ > detail::kMostNameBytes)
      fault("fewer names", "more than " + std::to_string(names_.size()));
    const std::size_t before = names_.size();
    if (names_.number(text) != before) fault("each name once", detail::shown(text));
  }
}

}  // namespace

bool begins_trace_file(std::string_view begin) {
  const std::size_t known = std::min(begin.size(), detail::kMagic.size());
  return known > 0 && begin.substr(0, known) == detail::kMagic.substr(0, known);
}

std::unique_ptr<Reader> read_trace_file(Input input) {
  return std::make_unique<FileReader>(std::move(input));
}

}  // namespace headroom::trace
