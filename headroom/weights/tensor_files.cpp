#include "headroom/weights/tensor_files.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/detail/packed_tensors.h"
#include "headroom/weights/detail/safetensors_file.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_writer.h"
#include "headroom/weights/detail/stored_weight.h"

namespace headroom::weights {

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  NamedTensors all;
  for (const auto& [name, tensor] : tensors) detail::add_parameter(all, name, tensor);
  detail::write_safetensors(path, all)->commit();
}

class TensorFile::Tensors {
 public:
  explicit Tensors(const std::filesystem::path& path)
      : file_(path), all_(detail::by_name(file_)), names_(detail::weights_in(all_)) {}

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool has(const std::string& name) const { return all_.count(name) > 0; }
  [[nodiscard]] detail::StoredWeight find(const std::string& name) const {
    if (all_.count(name) == 0) refuse(name, "a tensor", "none");
    return {all_, name};
  }
  [[nodiscard]] std::vector<std::int64_t> shape(const std::string& name) const {
    const detail::StoredWeight stored = find(name);
    std::vector<std::int64_t> shape = stored.shape();
    if (stored.is_transposed()) std::reverse(shape.begin(), shape.end());
    return shape;
  }
  void read(const std::string& name, const at::Tensor& to, bool as_stored) const {
    if (const auto its = shape(name); to.sizes() != at::IntArrayRef(its))
      refuse(name, "the shape " + c10::str(to.sizes()), c10::str(at::IntArrayRef(its)));
    const detail::StoredWeight stored = find(name);
    const bool transposed =
        stored.is_quantised() ? stored.is_transposed() : nn::is_packed_transposed(to);
    detail::read_weight(to, {stored}, transposed, as_stored);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& received) const {
    throw InputError(file_.name(), "expected " + expected + " for " + detail::in_quotes(name) +
                                       ", received " + received);
  }

  detail::SafetensorsFile file_;
  detail::StoredTensors all_;
  std::vector<std::string> names_;
};

TensorFile::TensorFile(const std::filesystem::path& path)
    : tensors_(std::make_unique<Tensors>(path)) {}
TensorFile::~TensorFile() = default;

std::vector<std::string> TensorFile::names() const {
  return tensors_->names();
}
bool TensorFile::has(const std::string& name) const {
  return tensors_->has(name);
}
std::vector<std::int64_t> TensorFile::shape(const std::string& name) const {
  return tensors_->shape(name);
}
void TensorFile::read_into(const std::string& name, const at::Tensor& to) const {
  tensors_->read(name, to, /*as_stored=*/false);
}
void TensorFile::read_as_stored(const std::string& name, const at::Tensor& parameter) const {
  tensors_->read(name, parameter, /*as_stored=*/true);
}
at::Tensor TensorFile::read(const std::string& name) const {
  const detail::StoredWeight stored = tensors_->find(name);
  const at::ScalarType type = stored.is_quantised() ? at::kFloat : stored.type();
  at::Tensor to = at::empty(shape(name), at::TensorOptions().dtype(type));
  stored.copy_into(to);
  return to;
}

}  // namespace headroom::weights
