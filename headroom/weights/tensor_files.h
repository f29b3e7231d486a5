// Any named tensors in a safetensors file, written and read without a second copy in memory.
//
//   save_tensors("states.safetensors", {{"exp_avg", a}, {"exp_avg_sq", b}});
//
//   const TensorFile file("states.safetensors");
//   for (const std::string& name : file.names()) states[name] = file.read(name);
//
// Tensors may be on any device. Types: floats of 16 bits or more, whole numbers, booleans. A
// quantised weight (nn/quantise.h) is stored as it is packed, under bitsandbytes' names, of which
// names() has the weight's own alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/weights/named_tensors.h"

namespace headroom::weights {

// Replaces an old file when the new one is complete and on the disk. Throws WriteError, and
// UsageError for another type.
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors);

class TensorFile {
 public:
  // Throws InputError for a file that cannot be read or is broken.
  explicit TensorFile(const std::filesystem::path& path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(const std::string& name) const;
  // These throw InputError for a tensor that the file lacks, and the second one for another shape.
  [[nodiscard]] std::vector<std::int64_t> shape(const std::string& name) const;
  // Converts the type. A quantised weight packs what it reads, or takes what is stored.
  void read_into(const std::string& name, const at::Tensor& to) const;
  // The same, but a parameter is quantised if the stored one is.
  void read_as_stored(const std::string& name, const at::Tensor& parameter) const;
  [[nodiscard]] at::Tensor read(const std::string& name) const;  // on the CPU

 private:
  class Tensors;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace headroom::weights
