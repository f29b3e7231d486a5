// What was tried: one line of JSON a try, appended to a file that several runs may share
// (docs/formats/run-history.md).
//
//   History history("history.ndjson");                  // throws WriteError: before anything runs
//   if (auto reason = history.append(record)) warn(*reason);   // never throws: a job was run
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/time.h"

namespace headroom::supervise {

struct TryRecord {
  int number = 1;
  WallTime started{}, ended{};
  std::optional<int> exit_code, signal;
  std::string verdict, kind, evidence;  // empty: unknown
  std::optional<Bytes> asked, peak;
  std::vector<std::string> gpus;  // UUIDs
  std::optional<long long> batch, accumulation;
  std::vector<std::string> command;
  std::optional<std::string> resumed_from;
};

// Without its line break.
[[nodiscard]] std::string to_line(const TryRecord& record);

class History {
 public:
  // Creates the file for its owner only: commands may hold what is nobody's business.
  explicit History(const std::filesystem::path& file);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Why it could not be written, if so; then the file is as it was. A last line that somebody left
  // without its end is ended first.
  [[nodiscard]] std::optional<std::string> append(const TryRecord& record);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace headroom::supervise
