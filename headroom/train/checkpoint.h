// Checkpoints of a run: everything that it needs to go on as if it had never stopped, in one folder
// each.
//
//   Checkpoints checkpoints("out");
//   checkpoints.save(step, position);   // any text; writes beside the next steps
//   ...
//   if (const auto found = checkpoints.load(step)) seek(found->more);
//
// out/checkpoint-00000012/ has model.safetensors (trained parameters and buffers under their names,
// which other programs can read), optimizer.safetensors, random.safetensors and state.json with the
// rest and the checksum of each file. A checkpoint has its name only when all of it is on the disk;
// a torn or foreign one is refused, and the one before it is used.
//
// Parameters that are not trained, such as the weights below adapters, are in one file for all
// checkpoints, out/frozen-HASH.safetensors, which the first save() writes before it returns. Each
// checkpoint names it by its hash. Keep it with the checkpoints that you copy.
//
// save() copies the rest to host memory and returns; a thread writes it. Where the host has no
// memory for that, save() writes by itself. `keep` counts the checkpoints that stay; of older ones
// only the files above are removed, and none that is newer than the one just saved.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/train/step.h"

namespace headroom::train {

namespace detail {
class FrozenPart;
}

struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;
  Plan plan;                         // of the last step before it
  std::string more;                  // as given to save()
  bool same_random_numbers = true;   // false: saved on another device, whose numbers differ
  bool same_optimizer = true;        // false: saved by one of another kind; its states start empty
  std::vector<std::string> refused;  // one sentence for each newer one that was not sound
  std::vector<std::filesystem::path> refused_folders;
};

class Checkpoints {
 public:
  // The first save() makes the folder, and removes the half-written files of a killed run.
  // `frozen`: the file of untrained parameters, shared with other checkpoints of this run; by
  // default it has one of its own.
  explicit Checkpoints(std::filesystem::path folder, int keep = 2,
                       std::shared_ptr<detail::FrozenPart> frozen = {});
  ~Checkpoints();  // waits for the writing
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // After a committed step. Throws WriteError, also that of the save before; then that checkpoint
  // is missing, and the older ones are there.
  void save(Step& step, const std::string& more = {});
  // Until all is on the disk. Throws WriteError.
  void wait();
  // True unless a save is still being written.
  [[nodiscard]] bool is_idle() const;

  // Puts the newest sound checkpoint into module, optimizer, scaler, step and random generators;
  // those in the folders `also` count, too. Waits for the writing. std::nullopt if there is none.
  // Throws InputError if none is sound. A checkpoint that does not fit the module is refused before
  // anything changes.
  [[nodiscard]] std::optional<FoundCheckpoint> load(
      Step& step, const std::vector<std::filesystem::path>& also = {}) const;
  // The weights of the newest sound one, into the module alone; returns its step.
  [[nodiscard]] std::optional<std::int64_t> load_weights(Step& step) const;
  // The `more` that the newest sound one was saved with.
  [[nodiscard]] std::optional<std::string> newest_more() const;
  // Their folders, the newest first.
  [[nodiscard]] std::vector<std::filesystem::path> all() const;

  // The bytes that one of this step takes on the disk, without its few KiB of JSON; and those of
  // the untrained parameters if the next save() writes them.
  [[nodiscard]] Bytes bytes(Step& step) const;
  [[nodiscard]] Bytes frozen_bytes(Step& step) const;

 private:
  class Writer;
  void remove_half_written();
  void remove_old() const;
  std::filesystem::path folder_;
  int keep_;
  std::int64_t writing_ = -1, written_ = -1;  // steps
  bool is_clean_ = false;                     // nothing half-written is left
  std::shared_ptr<detail::FrozenPart> frozen_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace headroom::train
