#include "headroom/weights/adapter_files.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <map>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/weights/detail/peft_config.h"
#include "headroom/weights/detail/safetensors_bytes.h"
#include "headroom/weights/detail/safetensors_file.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_types.h"
#include "headroom/weights/detail/safetensors_writer.h"

namespace headroom::weights {
namespace {

using detail::StoredTensor;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
const std::string kBefore = "base_model.model.";

// A file of adapters' tensors, each of which has one use.
class AdapterTensors {
 public:
  explicit AdapterTensors(const std::filesystem::path& path) : file_(path) {
    for (const StoredTensor& each : file_.tensors()) unused_[each.name] = &each;
  }

  // The layers that have a matrix lora_A, not an embedding's or a convolution's.
  [[nodiscard]] std::vector<std::string> linear_layers() const {
    const std::string after = ".lora_A.weight";
    std::vector<std::string> layers;
    for (const auto& [name, tensor] : unused_)
      if (name.starts_with(kBefore) && name.ends_with(after) && tensor->shape.size() == 2)
        layers.push_back(name.substr(kBefore.size(), name.size() - kBefore.size() - after.size()));
    return layers;
  }

  [[nodiscard]] bool has(const std::string& name) const { return unused_.count(name) > 0; }

  // Checks the tensor. A second call for the same name would not find it.
  const StoredTensor& use(const std::string& name, at::IntArrayRef sizes) {
    const auto found = unused_.find(name);
    if (found == unused_.end()) refuse_tensor(name, "the tensor", "none");
    const StoredTensor& tensor = *found->second;
    if (at::IntArrayRef(tensor.shape) != sizes)
      refuse_tensor(name, "the shape " + c10::str(sizes), c10::str(at::IntArrayRef(tensor.shape)));
    const auto type = detail::weight_type(tensor.type->name);
    if (!type || !c10::isFloatingType(*type))
      refuse_tensor(name, "F64, F32, F16 or BF16", std::string(tensor.type->name));
    unused_.erase(found);
    return tensor;
  }

  void refuse_unused() const {
    if (!unused_.empty())
      refuse_tensor(unused_.begin()->first, "no tensor", "one that belongs to no adapter");
  }

  void copy(const StoredTensor& from, const at::Tensor& to) const {
    detail::copy_in(file_.bytes_of(from), *detail::weight_type(from.type->name), to,
                    detail::SafetensorsFile::forget);
  }

 private:
  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& expected,
                                  const std::string& received) const {
    throw InputError(expectation(
        "load_adapter", expected + " for " + detail::in_quotes(name) + " in " + file_.name(),
        received));
  }

  detail::SafetensorsFile file_;
  std::map<std::string, const StoredTensor*> unused_;
};

}  // namespace

void save_adapter(const nn::Lora& lora, const std::filesystem::path& folder,
                  const AdapterInfo& info) {
  detail::make_folder(folder);
  NamedTensors tensors = lora.parameters();
  for (const auto& [name, tensor] : info.parameters) tensors.emplace_back(kBefore + name, tensor);
  const auto weights = detail::write_safetensors(folder / kWeights, tensors);
  OutputFile config(folder / kConfig);
  config.write(detail::peft_config_of(lora, info));
  weights->sync();
  config.sync();
  weights->commit();
  config.commit();
}

nn::Lora load_adapter(torch::nn::Module& model, const std::filesystem::path& folder,
                      const LoadAdapterOptions& options) {
  const detail::PeftConfig config = detail::read_peft_config(folder / kConfig);
  AdapterTensors stored(folder / kWeights);
  const std::vector<nn::LoraLayer> layers =
      detail::layers_of(config, nn::lora_layers(model), stored.linear_layers());
  if (layers.empty() && !options.is_part)
    throw InputError(expectation("load_adapter",
                                 "target_modules in " + config.source + " that the model has",
                                 "none of them"));
  std::vector<const StoredTensor*> adapters;
  for (const auto& [name, sizes] : nn::lora_sizes(model, layers))
    adapters.push_back(&stored.use(name, sizes));
  const auto weights = model.named_parameters();
  std::vector<std::pair<const StoredTensor*, at::Tensor>> bases;
  for (const nn::LoraLayer& layer : layers) {
    const std::string name = kBefore + layer.name + ".base_layer.weight";
    const at::Tensor* const weight = weights.find(layer.name + ".weight");
    if (weight != nullptr && stored.has(name))
      bases.emplace_back(&stored.use(name, weight->sizes()), *weight);
  }
  std::vector<at::Tensor> whole;
  for (const auto& parameter : weights)
    if (config.saves(parameter.key())) {
      bases.emplace_back(&stored.use(kBefore + parameter.key(), parameter->sizes()), *parameter);
      whole.push_back(*parameter);
    }
  if (!options.is_part) stored.refuse_unused();
  nn::Lora lora = nn::add_lora_to(model, layers,
                                  {.rank = config.rank,
                                   .alpha = config.alpha,
                                   .rank_stabilised = config.rank_stabilised,
                                   .dropout = config.dropout,
                                   .float32 = options.float32,
                                   .is_part = options.is_part});
  const auto parameters = lora.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    stored.copy(*adapters[i], parameters[i].second);
  for (const auto& [tensor, weight] : bases) stored.copy(*tensor, weight);
  for (at::Tensor& parameter : whole) parameter.set_requires_grad(true);
  return lora;
}

}  // namespace headroom::weights
