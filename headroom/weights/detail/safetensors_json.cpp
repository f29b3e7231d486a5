#include "headroom/weights/detail/safetensors_json.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "headroom/base/error.h"
#include "headroom/base/json.h"

namespace headroom::weights::detail {
namespace {

constexpr std::array<StoredType, 22> kTypes{{
    {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},        {"F8_E4M3", 8},     {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"C64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

// Characters of the header with their position, which the parser does not pass to its event
// handler.
class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Characters(const char* at, const char** farthest) : at_(at), farthest_(farthest) {}
  reference operator*() const { return *at_; }
  Characters& operator++() {
    *farthest_ = ++at_;
    return *this;
  }
  bool operator==(const Characters& other) const { return at_ == other.at_; }
  bool operator!=(const Characters& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** farthest_;
};

// Handles the parser's events. The file's object holds one object per tensor, and none within
// those. Unknown keys of an entry are skipped, as the format's own library does.
class Handler {
 public:
  Handler(const std::string& source, std::uint64_t offset, const char* begin)
      : source_(source), offset_(offset), begin_(begin) {}

  [[nodiscard]] const char** farthest() { return &farthest_; }
  std::vector<SafetensorsEntry> entries;

  bool null() { return other("null"); }
  bool boolean(bool) { return other("true or false"); }
  bool number_integer(std::int64_t value) { return other(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return other(text); }
  bool binary(nlohmann::json::binary_t&) { return other("bytes"); }

  bool number_unsigned(std::uint64_t value) {
    if (list_ == nullptr || passed_over_ > 0) return other(std::to_string(value));
    list_->push_back(value);
    return true;
  }

  bool string(std::string& text) {
    if (passed_over_ > 0 || in_metadata()) return true;
    if (field_ != "dtype" || list_ != nullptr) return other(in_quotes(text));
    const auto* type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.name == text; });
    if (type == kTypes.end()) fail("a type such as F32 or BF16", in_quotes(text));
    entries.back().tensor.type = type;
    return true;
  }

  bool start_object(std::size_t) {
    if (passed_over_ > 0 || is_unknown_field()) return enter();
    if (depth_ == 2 || list_ != nullptr) return other("an object");
    ++depth_;
    return true;
  }
  bool end_object() {
    if (passed_over_ > 0) return leave();
    if (--depth_ == 1) metadata_ = false;
    field_.clear();
    return true;
  }

  bool start_array(std::size_t) {
    if (passed_over_ > 0 || is_unknown_field()) return enter();
    if (depth_ != 2 || in_metadata() || list_ != nullptr || field_ == "dtype")
      return other("a list");
    SafetensorsEntry& entry = entries.back();
    const bool shape = field_ == "shape";
    list_ = shape ? &entry.shape : &entry.offsets;
    (shape ? entry.has_shape : entry.has_offsets) = true;
    return true;
  }
  bool end_array() {
    if (passed_over_ > 0) return leave();
    list_ = nullptr;
    return true;
  }

  bool key(std::string& name) {
    if (passed_over_ > 0) return true;
    if (depth_ == 1) return tensor_begins(name);
    if (!fields_.insert(name).second) fail("each key once", in_quotes(name) + " again");
    field_ = name;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
    throw InputError("safetensors", "expected a head of JSON in " + source_ +
                                        ", found something else at byte " +
                                        std::to_string(place()));
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& received) const {
    std::string where = source_;
    if (depth_ == 2 && !metadata_) where += ", tensor " + in_quotes(entries.back().tensor.name);
    if (metadata_) where += ", __metadata__";
    throw InputError(expectation(
        "safetensors", expected + " in " + where + ", byte " + std::to_string(place()), received));
  }

 private:
  [[nodiscard]] std::uint64_t place() const {
    return offset_ + static_cast<std::uint64_t>(farthest_ - begin_);
  }
  [[nodiscard]] bool in_metadata() const { return metadata_ && depth_ == 2; }
  [[nodiscard]] bool is_unknown_field() const {
    return depth_ == 2 && !metadata_ && field_ != "dtype" && field_ != "shape" &&
           field_ != "data_offsets";
  }
  bool enter() { return ++passed_over_, true; }
  bool leave() { return --passed_over_, true; }

  bool tensor_begins(const std::string& name) {
    if (!names_.insert(name).second) fail("each name once", in_quotes(name) + " again");
    fields_.clear();
    metadata_ = name == "__metadata__";
    if (metadata_) return true;
    entries.emplace_back().tensor.name = name;
    entries.back().place = place();
    return true;
  }

  // Refuses a value of a kind that the format does not allow here; ignores it where values are
  // skipped.
  bool other(const std::string& received) {
    if (passed_over_ > 0 || is_unknown_field()) return true;
    if (depth_ == 0) fail("an object", received);
    if (depth_ == 1)
      fail(metadata_ ? "an object with texts" : "an object for each tensor", received);
    if (metadata_) fail("texts alone", received);
    if (field_ == "dtype") fail("the name of a type for `dtype`", received);
    fail("a list of whole numbers for `" + field_ + "`", received);
  }

  const std::string& source_;
  const std::uint64_t offset_;
  const char* begin_;
  const char* farthest_ = begin_;
  int depth_ = 0;
  int passed_over_ = 0;  // nesting depth within a skipped value
  bool metadata_ = false;
  std::string field_;
  std::vector<std::uint64_t>* list_ = nullptr;
  std::unordered_set<std::string> names_, fields_;
};

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_json(std::string_view text, std::uint64_t offset,
                                                    const std::string& source) {
  Handler handler(source, offset, text.data());
  nlohmann::json::sax_parse(Characters(text.data(), handler.farthest()),
                            Characters(text.data() + text.size(), handler.farthest()), &handler);
  return std::move(handler.entries);
}

std::string in_quotes(const std::string& name) {
  return to_line(Json(name));
}

}  // namespace headroom::weights::detail
