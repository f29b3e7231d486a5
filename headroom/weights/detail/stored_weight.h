// A tensor of a checkpoint as it is stored: numbers, or a quantised weight under bitsandbytes'
// names.
//
//   const StoredTensors all = by_name(file);
//   for (const std::string& name : weights_in(all)) {
//     const StoredWeight weight(all, name);
//     if (weight.is_quantised()) use(weight.packed(device));
//   }
//   read_weight(parameter, {{weight}});   // whatever form the parameter has
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/kernels/packed.h"
#include "headroom/weights/detail/bitsandbytes.h"
#include "headroom/weights/detail/safetensors_file.h"

namespace headroom::weights::detail {

using StoredTensors = std::map<std::string, CheckpointTensor>;
[[nodiscard]] StoredTensors by_name(const SafetensorsFile& file);

// Without the tensors that describe quantised weights.
[[nodiscard]] std::vector<std::string> weights_in(const StoredTensors& all);

class StoredWeight {
 public:
  // Throws InputError for a quantised weight that cannot be read: fp4, other blocks, other numbers
  // for its codes, or tensors that are missing or have other sizes.
  StoredWeight(const StoredTensors& all, const std::string& name);

  [[nodiscard]] const CheckpointTensor& tensor() const { return own_; }
  [[nodiscard]] bool is_quantised() const { return format_.has_value(); }
  // Of its numbers, as the file has them: that of a Conv1D is transposed where it is quantised.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] bool is_transposed() const { return find(kTransposed) != nullptr; }
  [[nodiscard]] Bytes bytes() const;
  // The type of its numbers; throws InputError for one that weights cannot have.
  [[nodiscard]] at::ScalarType type() const;

  [[nodiscard]] kernels::Packed packed(c10::Device device) const;  // of a quantised one
  // The numbers, into memory of their count; quantised ones are unpacked.
  void copy_into(const at::Tensor& to) const;
  // The numbers of one that is not quantised.
  void add_to(kernels::Packer& packer, const at::TensorOptions& as, std::int64_t unit) const;

  [[noreturn]] void refuse(const std::string& expected, const std::string& received,
                           const std::string& to_try = {}) const;

 private:
  [[nodiscard]] const CheckpointTensor* find(const std::string& end) const;
  [[nodiscard]] const CheckpointTensor& part(const std::string& name, std::int64_t numbers,
                                             std::string_view type) const;
  void describe_nf4();
  void describe_int8();
  void check_numbers(const std::string& name, const at::Tensor& right) const;

  const StoredTensors& all_;
  const std::string name_;
  const CheckpointTensor own_;
  std::optional<kernels::Format> format_;
  std::vector<std::int64_t> shape_;
  std::vector<CheckpointTensor> parts_;  // beside the codes: scales, and those of nested ones
  double offset_ = 0;
};

// Reads a parameter from the tensors that make it up, one below the other. A quantised parameter is
// packed as they are read, or gets what is stored; one that is not is unpacked into. `transposed`:
// a Conv1D's, which quantised files hold as its transpose. `as_stored`: it is quantised if it is
// stored so, though it has memory now. Throws InputError if quantised tensors
// are mixed with others.
void read_weight(const at::Tensor& parameter, const std::vector<StoredWeight>& from,
                 bool transposed, bool as_stored = false);

}  // namespace headroom::weights::detail
