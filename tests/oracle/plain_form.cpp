#include "tests/oracle/plain_form.h"

#include <map>
#include <sstream>
#include <stdexcept>

namespace headroom::oracle {
namespace {

using allocator::Operation;
using allocator::StreamId;
using Kind = Operation::Kind;

// Ids of a file may be any numbers; operations want them without gaps.
class Ids {
 public:
  std::uint32_t operator()(std::uint64_t named) {
    return numbers_.try_emplace(named, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }

 private:
  std::map<std::uint64_t, std::uint32_t> numbers_;
};

template <typename Number>
Number number(std::istream& words) {
  Number value{};
  if (!(words >> value)) throw std::runtime_error("a number is missing");
  return value;
}

template <typename Number>
Number number_or(std::istream& words, Number otherwise) {
  Number value{};
  return words >> value ? value : otherwise;
}

Operation pool(Kind kind, std::istream& words) {
  return {.bytes = number<std::int64_t>(words), .kind = kind};
}

Operation settings(std::istream& words, PlainStream& stream) {
  std::string text;
  std::getline(words >> std::ws, text);
  stream.settings_texts.push_back(text);
  return {.id = static_cast<std::uint32_t>(stream.settings_texts.size() - 1),
          .kind = Kind::change_settings};
}

Operation operation(char letter, std::istream& words, Ids& ids, PlainStream& stream) {
  switch (letter) {
    case 'a': {
      const std::uint32_t id = ids(number<std::uint64_t>(words));
      const auto bytes = number<std::int64_t>(words);
      return {bytes, id, number_or<StreamId>(words, 0), Kind::allocate};
    }
    case 'f':
      return {.id = ids(number<std::uint64_t>(words)), .kind = Kind::free};
    case 'r': {
      const std::uint32_t id = ids(number<std::uint64_t>(words));
      return {0, id, number<StreamId>(words), Kind::record_stream};
    }
    case 'y':
      return {.stream = number_or<StreamId>(words, Operation::kAllStreams),
              .kind = Kind::complete_events};
    case 'e':
      return {.kind = Kind::empty_cache};
    case 'P':
      return {.kind = Kind::reset_peaks};
    case 'c':
      return settings(words, stream);
    case 'B':
      return pool(Kind::begin_pool, words);
    case 'E':
      return pool(Kind::end_pool, words);
    case 'R':
      return pool(Kind::release_pool, words);
    default:
      throw std::runtime_error("no such event");
  }
}

std::string line(const Operation& o, const std::vector<std::string>& settings_texts) {
  const auto text = [](auto n) { return " " + std::to_string(n); };
  switch (o.kind) {
    case Kind::allocate:
      return "a" + text(o.id) + text(o.bytes) + (o.stream > 0 ? text(o.stream) : "");
    case Kind::free:
      return "f" + text(o.id);
    case Kind::record_stream:
      return "r" + text(o.id) + text(o.stream);
    case Kind::complete_events:
      return "y" + (o.stream == Operation::kAllStreams ? "" : text(o.stream));
    case Kind::empty_cache:
      return "e";
    case Kind::reset_peaks:
      return "P";
    case Kind::change_settings:
      return "c " + settings_texts.at(o.id);
    case Kind::begin_pool:
      return "B" + text(o.bytes);
    case Kind::end_pool:
      return "E" + text(o.bytes);
    case Kind::release_pool:
      return "R" + text(o.bytes);
    case Kind::nothing:
      return "#";
  }
  throw std::logic_error("no such kind of operation");
}

}  // namespace

PlainStream read_plain_form(std::istream& in) {
  PlainStream stream;
  Ids ids;
  std::string text;
  for (int at = 1; std::getline(in, text); ++at) {
    std::istringstream words(text.substr(0, text.find('#')));
    std::string letter;
    if (!(words >> letter)) continue;
    try {
      if (letter.size() != 1) throw std::runtime_error("no such event");
      stream.operations.push_back(operation(letter[0], words, ids, stream));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("line " + std::to_string(at) + ": " + error.what() + ": " + text);
    }
  }
  return stream;
}

std::string to_plain_form(const std::vector<Operation>& operations,
                          const std::vector<std::string>& settings_texts) {
  std::string text;
  for (const Operation& operation : operations) text += line(operation, settings_texts) + "\n";
  return text;
}

}  // namespace headroom::oracle
