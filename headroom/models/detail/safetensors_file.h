// A checkpoint on the disk: one safetensors file, or several with an index, mapped into memory.
//
//   const Checkpoint checkpoint("Llama-3.2-1B");   // a folder of the hub, or a file
//   for (const CheckpointTensor& each : checkpoint.tensors())
//     use(each.file->bytes_of(*each.tensor));
//
// Mapped pages are the system's copy of the file, read when they are looked at. Whoever makes a
// file shorter while it is mapped ends the program that looks at it; files that are replaced by
// renaming, as `save` does, may change at any time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/models/detail/safetensors_header.h"

namespace headroom::models::detail {

class SafetensorsFile {
 public:
  // Throws InputError: it cannot be read, is no file, or what read_safetensors_header refuses.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::string_view bytes_of(const StoredTensor& tensor) const;
  // These of its bytes have been looked at; their pages need not stay in this process's memory.
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
  // Of a folder: model.safetensors, else model.safetensors.index.json. Throws InputError: none of
  // them, a broken index, a file that it names and that is not there or lacks a tensor, a tensor
  // that two files have.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::string& name() const { return name_; }
  // In the order in which their bytes lie, file by file.
  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const { return tensors_; }

 private:
  void open_index(const std::filesystem::path& path);

  std::string name_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<CheckpointTensor> tensors_;
};

}  // namespace headroom::models::detail
