#include "headroom/weights/detail/safetensors_writer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <system_error>

#include "headroom/base/error.h"
#include "headroom/weights/detail/safetensors_bytes.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_types.h"

namespace headroom::weights::detail {
namespace {

namespace fs = std::filesystem;
using at::Tensor;

std::size_t type_of(const std::string& name, const Tensor& tensor) {
  const auto type = type_index(tensor.scalar_type());
  if (!type)
    throw UsageError(expectation("save", "floats of 16 bits or more, or whole numbers, for " + name,
                                 c10::toString(tensor.scalar_type())));
  return *type;
}

// The order of the format's own library: the widest types first, so that all are aligned.
void sort_for_file(NamedTensors& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const std::size_t of_a = type_of(a.first, a.second), of_b = type_of(b.first, b.second);
    return of_a != of_b ? of_a < of_b : a.first < b.first;
  });
}

std::string head_of(const NamedTensors& tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::size_t place = 0;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const std::int64_t size : tensor.sizes())
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    json += "," + in_quotes(name) + R"(:{"dtype":")";
    json += kWeightTypes[type_of(name, tensor)].first;
    json += R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(place) + ",";
    place += tensor.nbytes();
    json += std::to_string(place) + "]}";
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (std::size_t i = 0; i < 8; ++i) head += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  return head + json;
}

}  // namespace

std::unique_ptr<OutputFile> write_safetensors(const fs::path& path, NamedTensors tensors) {
  sort_for_file(tensors);
  auto file = std::make_unique<OutputFile>(path);
  file->write(head_of(tensors));
  for (const auto& [name, tensor] : tensors)
    copy_out(tensor, [&](std::string_view bytes) { file->write(bytes); });
  return file;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw WriteError("save", "cannot make " + path.string() + ": " + error.message());
}

}  // namespace headroom::weights::detail
