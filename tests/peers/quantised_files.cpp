// Headroom's side of quantised.py: packs and unpacks tensors of files, and models.
//
//   quantised_files pack IN.safetensors OUT.safetensors FORMAT
//   quantised_files unpack IN.safetensors OUT.safetensors
//   quantised_files convert FOLDER OUT FORMAT      a model of the hub, in bfloat16
//   quantised_files logits FOLDER OUT.safetensors  of quantised weights, in bfloat16
//   quantised_files steps IN.safetensors OUT.safetensors
//                              of 8-bit AdamW, from the file's `weight` and its `gradients`, a row a step
//
// FORMAT: nf4 (with 8-bit scales), nf4-float (with float scales) or int8.
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/model.h"
#include "headroom/nn/quantise.h"
#include "headroom/optim/optimizer.h"
#include "headroom/weights/safetensors.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::weights {
namespace {

namespace fs = std::filesystem;

nn::QuantiseOptions options_of(const std::string& format) {
  if (format == "int8") return {.format = kernels::Format::int8};
  return {.format = kernels::Format::nf4, .nested = format == "nf4"};
}

void pack(const fs::path& in, const fs::path& out, const std::string& format) {
  const nn::QuantiseOptions options = options_of(format);
  const TensorFile file(in);
  NamedTensors packed;
  for (const std::string& name : file.names()) {
    const at::Tensor weight = file.read(name);
    const kernels::Packed into = kernels::make_packed(
        options.format, weight.size(0), weight.size(1), weight.device(), options.nested);
    kernels::pack(weight, into);
    nn::set_packed(weight, into);
    packed.emplace_back(name, weight);
  }
  save_tensors(out, packed);
}

// In float, and under the names NAME.bfloat16 and NAME.float16 in these types.
void unpack(const fs::path& in, const fs::path& out) {
  const TensorFile file(in);
  NamedTensors plain;
  for (const std::string& name : file.names())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor weight = at::empty(file.shape(name), type);
      file.read_into(name, weight);
      plain.emplace_back(name + (type == at::kFloat      ? ""
                                 : type == at::kBFloat16 ? ".bfloat16"
                                                         : ".float16"),
                         weight);
    }
  save_tensors(out, plain);
}

// Without memory for the linear layers: they are packed as they are read.
std::shared_ptr<models::Model> model_of(const fs::path& folder, const LoadOptions& options) {
  const auto config = model::read_config(folder.string());
  const auto model = libtorch::on(at::kCPU, at::kBFloat16, [&] {
    const nn::WithoutMemoryScope scope;
    return models::build(config);
  });
  std::printf("%s", to_string(load(*model, folder, options)).c_str());
  model->train(false);
  return model;
}

void convert(const fs::path& folder, const fs::path& out, const std::string& format) {
  const auto model = model_of(folder, {.quantise = options_of(format)});
  save(*model, out);
  Json config = model->config().file();
  config["quantization_config"] = Json::parse(quantisation_config(*model).value());
  config["dtype"] = "bfloat16";
  write_file_atomically(out / "config.json", config.dump(1));
}

void logits(const fs::path& folder, const fs::path& out) {
  const at::NoGradGuard no_grad;
  const auto model = model_of(folder, {});
  if (nn::quantised_layers(model->module()).empty()) throw InternalError("nothing is quantised");
  models::Batch batch;
  batch.tokens = at::arange(64).view({2, 32});
  save_tensors(out, {{"logits", model->run(batch).logits}});
}

void steps(const fs::path& in, const fs::path& out) {
  const TensorFile file(in);
  at::Tensor weight = file.read("weight").requires_grad_();
  const auto optimizer = optim::make_compact_adamw({weight});
  for (const at::Tensor& gradient : file.read("gradients").unbind()) {
    weight.mutable_grad() = gradient;
    optimizer->step();
  }
  save_tensors(out, {{"weight", weight.detach()}});
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[0] == "pack") return pack(words[1], words[2], words[3]), 0;
  if (words.size() == 3 && words[0] == "unpack") return unpack(words[1], words[2]), 0;
  if (words.size() == 4 && words[0] == "convert") return convert(words[1], words[2], words[3]), 0;
  if (words.size() == 3 && words[0] == "logits") return logits(words[1], words[2]), 0;
  if (words.size() == 3 && words[0] == "steps") return steps(words[1], words[2]), 0;
  return 2;
}

}  // namespace
}  // namespace headroom::weights

int main(int count, char** arguments) {
  try {
    return headroom::weights::main_of({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
