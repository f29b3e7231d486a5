// The values of a command that may be changed, and where they stand: arguments, key=value
// arguments, files and environment variables that the user mapped to `batch` and `accumulation`.
//
// Immutable and cheap to copy. The constructor reads the files, once.
//
//   Knobs knobs({"--batch-size=batch", "--accum=accumulation"}, command);
//   knobs.value(Quantity::batch);          // 64
//   Changed changed = knobs.with(16, 4);   // a command, variables and edits of files
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/edit/quantity.h"

namespace headroom::edit {

// One try's command.
struct Changed {
  std::vector<std::string> command;
  std::vector<std::string> environment;                // "NAME=value"
  std::map<std::filesystem::path, std::string> files;  // whole new contents
};

// The files that the maps name; restore_leftovers() (edited_files.h) takes them before they are
// read. Throws UsageError for an invalid map.
[[nodiscard]] std::vector<std::filesystem::path> mapped_files(const std::vector<std::string>& maps);

class Knobs {
 public:
  // Throws UsageError for an invalid map, for a name that the command lacks, and for a place that
  // cannot be changed safely; InputError for a file that is neither YAML nor JSON.
  Knobs(const std::vector<std::string>& maps, std::vector<std::string> command);

  [[nodiscard]] bool has(Quantity quantity) const;
  // The value in the command as given. An accumulation that is mapped but not given is 1.
  [[nodiscard]] std::optional<long long> value(Quantity quantity) const;
  // Its name in messages: "--batch-size", "config.yaml:training.batch_size".
  [[nodiscard]] std::string name(Quantity quantity) const;
  // A name with a value, for messages: "--batch-size 32", "train.bs=32".
  [[nodiscard]] std::string setting(Quantity quantity, long long value) const;
  // Assumptions about the command, one sentence each.
  [[nodiscard]] std::vector<std::string> assumptions() const;

  // The command without its mapped values, as a key for settings that worked: "cd /home/u && python
  // t.py --batch-size {batch}".
  [[nodiscard]] std::string job() const;

  // The command with these values in every mapped place. All else stays; a place whose value stays
  // keeps even its spelling.
  [[nodiscard]] Changed with(long long batch, long long accumulation) const;

  // `command`, a result of with(), with more arguments for the program that gets the batch, also
  // inside `bash -c "..."`. Throws UsageError if that program is not clear.
  [[nodiscard]] std::vector<std::string> with_arguments(
      const std::vector<std::string>& command, const std::vector<std::string>& arguments) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace headroom::edit
