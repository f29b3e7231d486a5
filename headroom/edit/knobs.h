// What of a command may be changed, and where it stands: arguments, key=value arguments, files and
// environment variables that the user mapped to `batch` and `accumulation`.
//
// Values are immutable and copies are cheap; files are read once, when it is made.
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

namespace headroom::edit {

enum class Quantity { batch, accumulation };
// The largest value of either: the product of two fits into 64 bits.
constexpr long long kMostBatch = 1'000'000'000;

// One try's command.
struct Changed {
  std::vector<std::string> command;
  std::vector<std::string> environment;                // "NAME=value"
  std::map<std::filesystem::path, std::string> files;  // whole new contents
};

// The files that maps name: what a killed run left of them is put back before they are read
// (edited_files.h). Throws UsageError for a map that is none.
[[nodiscard]] std::vector<std::filesystem::path> mapped_files(const std::vector<std::string>& maps);

class Knobs {
 public:
  // Throws UsageError for a map that is none, that names what the command does not have, or whose
  // place cannot be changed safely; InputError for a file that cannot be read as YAML or JSON.
  Knobs(const std::vector<std::string>& maps, std::vector<std::string> command);

  [[nodiscard]] bool has(Quantity quantity) const;
  // As the command has it now. An accumulation that is mapped but nowhere given is 1.
  [[nodiscard]] std::optional<long long> value(Quantity quantity) const;
  // How messages name it: "--batch-size", "config.yaml:training.batch_size".
  [[nodiscard]] std::string name(Quantity quantity) const;
  // "--batch-size 32", "train.bs=32": how messages name a value in that place.
  [[nodiscard]] std::string setting(Quantity quantity, long long value) const;
  // What was taken for granted, a sentence each.
  [[nodiscard]] std::vector<std::string> assumptions() const;

  // What is run, without what may be changed of it: the key under which what worked is remembered.
  // "cd /home/u && python t.py --batch-size {batch}".
  [[nodiscard]] std::string job() const;

  // The command with these values in every place that is mapped, and nothing else changed. Where a
  // value is what it was, nothing is: not even its spelling.
  [[nodiscard]] Changed with(long long batch, long long accumulation) const;

  // `command` (one that with() gave) with more arguments for the program that gets the batch, also
  // within `bash -c "..."`. Throws UsageError where it is not clear which program that is.
  [[nodiscard]] std::vector<std::string> with_arguments(
      const std::vector<std::string>& command, const std::vector<std::string>& arguments) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace headroom::edit
