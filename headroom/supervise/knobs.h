// What of a command may be changed, and where it stands: arguments, key=value arguments, files and
// environment variables that the user mapped to `batch` and `accumulation`.
//
//   Knobs knobs({"--batch-size=batch", "--accum=accumulation"}, {"python", "t.py", "--batch-size",
//   "64"}); knobs.value(Quantity::batch);              // 64 Changed changed = knobs.with(16, 4);
//   // a command, variables and edits of files
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace headroom::supervise {

enum class Quantity { batch, accumulation };

// One try's command.
struct Changed {
  std::vector<std::string> command;
  std::vector<std::string> environment;                // "NAME=value"
  std::map<std::filesystem::path, std::string> files;  // whole new contents
};

class Knobs {
 public:
  // Throws UsageError for a map that is none or that names what the command does not have, and
  // InputError for a file that cannot be read as YAML or JSON.
  Knobs(const std::vector<std::string>& maps, std::vector<std::string> command);

  [[nodiscard]] bool has(Quantity quantity) const;
  // As the command has it now. An accumulation that is mapped but nowhere given is 1.
  [[nodiscard]] std::optional<long long> value(Quantity quantity) const;
  // How messages name it: "--batch-size", "config.yaml:training.batch_size".
  [[nodiscard]] std::string name(Quantity quantity) const;
  // What was taken for granted, a sentence each.
  [[nodiscard]] std::vector<std::string> assumptions() const;

  // The command with these values in every place that is mapped, and nothing else changed.
  [[nodiscard]] Changed with(long long batch, long long accumulation) const;

 private:
  struct Place;
  std::vector<Place> places_;
  std::vector<std::string> command_;
};

}  // namespace headroom::supervise
