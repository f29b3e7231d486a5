// The folder that a training writes. It knows which files are the training's own, and keeps a
// second run from writing there. Files of others are never replaced, moved or removed.
//
//   RunFolder folder("out");         // from here on no other run writes there
//   folder.set_aside();              // a new run: what an earlier one left moves to out/earlier-1
//   folder.claim("metrics.jsonl");   // before the run makes it
//
// out/headroom-run.json lists the files that runs have made there (docs/formats/training-run.md).
// Checkpoints are known by their names, checkpoint-00000100, and so is the file of untrained
// parameters that they name. A folder without that list is a run's
// if its records or checkpoints are Headroom's: earlier versions made no list.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/descriptor.h"

namespace headroom {

struct SetAside {
  std::filesystem::path folder;  // out/earlier-2
  int earlier = 0;               // runs that now lie aside
  Bytes bytes;                   // of all of them
};
// "an earlier run is now in out/earlier-2 (2 earlier runs there, 1.2 GiB)"
[[nodiscard]] std::string to_string(const SetAside& moved);

class RunFolder {
 public:
  // Makes the folder, and finishes set_aside() of a run that was killed meanwhile. Throws
  // BusyError, with the PID, if another run writes there, and WriteError if the folder cannot be
  // made.
  explicit RunFolder(std::filesystem::path folder);

  // Whether an earlier run has left something there.
  [[nodiscard]] bool has_a_run() const;
  // Moves all that earlier runs have left into a folder earlier-N; std::nullopt if there was
  // nothing. Nothing in such a folder is ever read or removed. Throws WriteError.
  std::optional<SetAside> set_aside();
  // Notes that runs make this file or folder. Throws WriteError if one is there that no run made.
  void claim(const std::string& name);
  // The same for one that was made just now, under a name that was free.
  void made(const std::string& name);

 private:
  void finish_set_aside();
  std::filesystem::path folder_;
  Descriptor open_;  // and locked
};

// ---- Questions, which change nothing ----

// A run's checkpoints: its folders checkpoint-00000100, the newest first.
struct CheckpointFolder {
  std::filesystem::path path;
  std::int64_t step = 0;
};
[[nodiscard]] std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& folder);

// The file of untrained parameters that checkpoints name by the hash of its content:
// frozen-HASH.safetensors. It is written in the folder kHalfFrozenPart.
[[nodiscard]] std::string frozen_part_name(const std::string& hash);
[[nodiscard]] bool is_frozen_part(const std::filesystem::path& file);
inline constexpr const char* kHalfFrozenPart = "frozen.unfinished";

// checkpoint-00000100.unfinished, which is renamed when all of it is on the disk.
[[nodiscard]] bool is_half_written_checkpoint(const std::filesystem::path& folder);

// Whether a run has left something there; and whether it made the file of this name, which is
// there.
[[nodiscard]] bool is_run_folder(const std::filesystem::path& folder);
[[nodiscard]] bool is_of_a_run(const std::filesystem::path& folder, const std::string& name);
// Throws BusyError, with the PID, if a run writes there now, and WriteError if one of these names
// exists and belongs to no run.
void check_run_folder(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace headroom
