// The history of tries: one line of JSON a try, appended to a file that several runs may share
// (docs/formats/run-history.md).
//
//   History history("history.ndjson");                  // throws WriteError, before anything runs
//   if (auto reason = history.append(one)) warn(*reason);   // does not throw: a job was run
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "headroom/base/descriptor.h"
#include "headroom/supervise/try.h"

namespace headroom::supervise {

// Without its line break.
[[nodiscard]] std::string to_line(const Try& one);

class History {
 public:
  // Creates the file for its owner only: commands may hold secrets.
  explicit History(const std::filesystem::path& file);

  // The reason if it could not be written; the file is then unchanged. Ends an incomplete last line
  // of another writer first.
  [[nodiscard]] std::optional<std::string> append(const Try& one);

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace headroom::supervise
