// The events of a Chrome trace, written one by one (docs/formats/chrome.md).
#pragma once

#include <filesystem>
#include <string_view>

#include "headroom/base/json.h"
#include "headroom/base/output_file.h"

namespace headroom::trace {

class ChromeEvents {
 public:
  explicit ChromeEvents(const std::filesystem::path& path);

  // `members`: the fields of an event in JSON, without braces.
  void put(std::string_view members);
  // Writes the entries of the whole trace, and commits the file. Throws WriteError.
  void finish(const Json& other);

 private:
  OutputFile file_;
  bool is_first_ = true;
};

}  // namespace headroom::trace
