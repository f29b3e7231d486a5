#include "headroom/base/json.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"

namespace headroom {

Json parse_json(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw InputError("parse_json", "expected JSON in " + std::string(source) +
                                       ", found something else at byte " +
                                       std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    throw InputError("parse_json", "expected JSON in " + std::string(source) +
                                       ", found a number that is out of range");
  }
}

std::string to_line(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Bytes bytes_from(const Json& count) {
  return Bytes{count.get<std::int64_t>()};
}

}  // namespace headroom
