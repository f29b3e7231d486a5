#include "headroom/weights/tensor_files.h"

#include <ATen/ATen.h>

#include <map>

#include "headroom/base/error.h"
#include "headroom/weights/detail/safetensors_bytes.h"
#include "headroom/weights/detail/safetensors_file.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_types.h"
#include "headroom/weights/detail/safetensors_writer.h"

namespace headroom::weights {

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  detail::write_safetensors(path, tensors)->commit();
}

class TensorFile::Tensors {
 public:
  explicit Tensors(const std::filesystem::path& path) : file_(path) {
    for (const detail::StoredTensor& tensor : file_.tensors()) by_name_[tensor.name] = &tensor;
  }

  [[nodiscard]] const std::map<std::string, const detail::StoredTensor*>& all() const {
    return by_name_;
  }
  [[nodiscard]] const detail::StoredTensor& find(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) refuse(name, "a tensor", "none");
    return *found->second;
  }
  [[nodiscard]] c10::ScalarType type_of(const detail::StoredTensor& tensor) const {
    const auto type = detail::weight_type(tensor.type->name);
    if (!type) refuse(tensor.name, "numbers of 16 bits or more", std::string(tensor.type->name));
    return *type;
  }
  void copy(const detail::StoredTensor& tensor, const at::Tensor& to) const {
    if (to.sizes() != at::IntArrayRef(tensor.shape))
      refuse(tensor.name, "the shape " + c10::str(to.sizes()),
             c10::str(at::IntArrayRef(tensor.shape)));
    detail::copy_in(file_.bytes_of(tensor), type_of(tensor), to, detail::SafetensorsFile::forget);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& received) const {
    throw InputError(file_.name(), "expected " + expected + " for " + detail::in_quotes(name) +
                                       ", received " + received);
  }

  detail::SafetensorsFile file_;
  std::map<std::string, const detail::StoredTensor*> by_name_;
};

TensorFile::TensorFile(const std::filesystem::path& path)
    : tensors_(std::make_unique<Tensors>(path)) {}
TensorFile::~TensorFile() = default;

std::vector<std::string> TensorFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_->all()) names.push_back(name);
  return names;
}
bool TensorFile::has(const std::string& name) const {
  return tensors_->all().contains(name);
}
std::vector<std::int64_t> TensorFile::shape(const std::string& name) const {
  return tensors_->find(name).shape;
}
void TensorFile::read_into(const std::string& name, const at::Tensor& to) const {
  tensors_->copy(tensors_->find(name), to);
}
at::Tensor TensorFile::read(const std::string& name) const {
  const detail::StoredTensor& tensor = tensors_->find(name);
  at::Tensor to = at::empty(tensor.shape, at::TensorOptions().dtype(tensors_->type_of(tensor)));
  tensors_->copy(tensor, to);
  return to;
}

}  // namespace headroom::weights
