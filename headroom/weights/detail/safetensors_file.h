// A checkpoint on disk: one safetensors file, or several with an index, mapped into memory.
//
//   const Checkpoint checkpoint("Llama-3.2-1B");   // a folder of the hub, or a file
//   for (const CheckpointTensor& each : checkpoint.tensors())
//     use(each.file->bytes_of(*each.tensor));
//
// Mapped pages are the kernel's copy of the file, read on access. Truncating a file while it is
// mapped kills the process that accesses it (SIGBUS). Replacing a file by renaming, as `save` does,
// is safe at any time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/weights/detail/safetensors_header.h"

namespace headroom::weights::detail {

class SafetensorsFile {
 public:
  // Throws InputError if the file cannot be read, is not a regular file, or has a bad header.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::string_view bytes_of(const StoredTensor& tensor) const;
  // Advises the kernel that these bytes have been read, so their pages need not stay in memory.
  static void forget(std::string_view bytes);

 private:
  std::string name_;
  std::string_view bytes_;
  std::vector<StoredTensor> tensors_;
};

struct CheckpointTensor {
  const SafetensorsFile* file;
  const StoredTensor* tensor;
};

class Checkpoint {
 public:
  // In a folder, opens model.safetensors, else model.safetensors.index.json. Throws InputError if
  // neither exists, the index is broken, a file that it names is missing or lacks a tensor, or two
  // files have the same tensor.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::string& name() const { return name_; }
  // File by file, in the order of their bytes.
  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const { return tensors_; }

 private:
  void open_index(const std::filesystem::path& path);

  std::string name_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<CheckpointTensor> tensors_;
};

}  // namespace headroom::weights::detail
