// The parameters of a run that are not trained, in one file for all of its checkpoints:
// frozen-HASH.safetensors beside them, named by the SHA-256 of its content. It is written and
// hashed once, at the first save, and again only if something has changed these parameters since,
// such as a step that stores them in fewer bits.
//
//   FrozenPart frozen("out");
//   state["frozen"] = frozen.save(model);                   // when a checkpoint is saved
//   const TensorFile file(frozen.find(checkpoint, hash));   // when it is read
//
// Several Checkpoints share one, such as those of a run's folder and of best/ in it.
//
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/train/detail/checkpoint_files.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::train::detail {

class FrozenPart {
 public:
  explicit FrozenPart(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The hash of the file that has these parameters, which is on the disk by then; "" without any.
  // It is written piece by piece, without a copy in memory. Throws WriteError.
  [[nodiscard]] std::string save(const Modules& model);

  // The file that a checkpoint names, beside it or beside its folder. Throws InputError if it is
  // missing, or its content has another hash; a file is hashed once.
  [[nodiscard]] std::filesystem::path find(const std::filesystem::path& checkpoint,
                                           const std::string& hash);
  // The model now has the values of this file.
  void loaded(const Modules& model, const std::filesystem::path& file, const std::string& hash);
  // Whether it still has those of the file with this hash.
  [[nodiscard]] bool is_loaded(const Modules& model, const std::string& hash) const;

  // Removes the files of earlier processes that no checkpoint names any more.
  void remove_unused() const;

  // What save() will write now.
  [[nodiscard]] Bytes bytes_to_write(const Modules& model) const;

 private:
  // Shows whether a tensor was written or replaced since. The weak reference keeps a freed memory's
  // address from being given to another.
  struct Version {
    std::string name;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    std::int64_t writes;
    friend bool operator==(const Version& a, const Version& b) {
      return a.name == b.name && a.memory == b.memory && a.writes == b.writes;
    }
  };
  [[nodiscard]] static std::vector<Version> versions_of(const Modules& model);
  [[nodiscard]] std::filesystem::path path_of(const std::string& hash) const;
  [[nodiscard]] std::string write(const weights::NamedTensors& tensors);

  std::filesystem::path folder_;
  std::string hash_;  // of the values that `saved_` had
  std::vector<Version> saved_;
  std::set<std::string> written_;                        // hashes of this process
  std::map<std::filesystem::path, std::string> hashes_;  // of files that were read
};

}  // namespace headroom::train::detail
