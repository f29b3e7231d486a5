#include "headroom/weights/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/models/initialise.h"
#include "headroom/weights/detail/safetensors_bytes.h"
#include "headroom/weights/detail/safetensors_file.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_names.h"
#include "headroom/weights/detail/safetensors_types.h"

namespace headroom::weights {
namespace {

using at::Tensor;
using detail::Checkpoint;
using detail::CheckpointTensor;
using detail::Match;
using detail::State;

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ", ") + "]";
}

[[noreturn]] void refuse(const CheckpointTensor& stored, const std::string& expected,
                         const std::string& received, const std::string& to_try = {}) {
  throw InputError(expectation("load",
                               expected + " for tensor " + detail::in_quotes(stored.tensor->name) +
                                   " in " + stored.file->name() + ", byte " +
                                   std::to_string(stored.tensor->begin),
                               received, to_try));
}

bool is_whole(at::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true);
}

void check_type(const CheckpointTensor& stored, const Tensor& place) {
  const auto type = detail::weight_type(stored.tensor->type->name);
  const std::string name(stored.tensor->type->name);
  if (!type)
    refuse(stored, "a type that weights have (F64, F32, F16, BF16, or whole numbers)", name,
           "the checkpoint that it was made from, which is not quantized");
  if (is_whole(*type) != is_whole(place.scalar_type()))
    refuse(stored, is_whole(place.scalar_type()) ? "whole numbers" : "floats", name);
}

// A tensor of the checkpoint and its destination in the model.
struct Copy {
  CheckpointTensor stored;
  Tensor place;
};

// Lists the tensors to copy, in file order. Checks all of them before any is copied.
std::vector<Copy> copies(const Checkpoint& checkpoint, const State& state, Match& match,
                         const LoadOptions& options, Loaded& loaded) {
  std::map<std::size_t, Copy> in_order;
  for (const auto& [name, place] : state.tensors) {
    const auto found = match.found.find(name);
    if (found == match.found.end()) continue;
    const CheckpointTensor& stored = checkpoint.tensors()[found->second];
    if (stored.tensor->shape != place.sizes().vec()) {
      if (!options.skip_other_shapes)
        refuse(stored, text_of(place.sizes().vec()), text_of(stored.tensor->shape),
               "the config.json that belongs to these weights");
      loaded.other_shapes.push_back({name, stored.tensor->shape, place.sizes().vec()});
      match.missing.push_back(name);
      continue;
    }
    check_type(stored, place);
    in_order.emplace(found->second, Copy{stored, place});
  }
  std::vector<Copy> all;
  for (auto& [index, copy] : in_order) all.push_back(std::move(copy));
  return all;
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const CheckpointTensor& stored : checkpoint.tensors()) names.push_back(stored.tensor->name);
  return names;
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) first.push_back(names[i]);
  const std::string rest =
      names.size() > kMost ? " and " + std::to_string(names.size() - kMost) + " more" : "";
  return join(first, ", ") + rest;
}

}  // namespace

Loaded load(models::Model& model, const std::filesystem::path& path, const LoadOptions& options) {
  const Checkpoint checkpoint(path);
  const State state = detail::state_of(model);
  const std::vector<std::string> names = names_of(checkpoint);
  Match match = detail::matched(names, state, model.config().type(), checkpoint.name());
  if (match.found.empty() && !state.tensors.empty())
    throw InputError(expectation("load",
                                 "weights of a " + model.config().type() + " model in " +
                                     checkpoint.name() + ", such as " + state.tensors.front().first,
                                 names.empty() ? "no tensors" : first_of(names)));
  Loaded loaded{.from = checkpoint.name()};
  const std::vector<Copy> all = copies(checkpoint, state, match, options, loaded);
  for (const auto& [stored, place] : all) {
    const std::string_view bytes = stored.file->bytes_of(*stored.tensor);
    detail::copy_in(bytes, *detail::weight_type(stored.tensor->type->name), place,
                    detail::SafetensorsFile::forget);
    loaded.bytes += Bytes{static_cast<std::int64_t>(bytes.size())};
  }
  models::initialise(model, match.missing);
  loaded.tensors = all.size();
  loaded.missing = std::move(match.missing);
  loaded.unexpected = std::move(match.unexpected);
  return loaded;
}

std::string to_string(const Loaded& loaded) {
  std::ostringstream text;
  text << loaded.tensors << (loaded.tensors == 1 ? " tensor, " : " tensors, ")
       << headroom::to_string(loaded.bytes) << ", from " << loaded.from << '\n';
  constexpr std::size_t kMostShown = 3;
  for (std::size_t i = 0; i < std::min(kMostShown, loaded.other_shapes.size()); ++i) {
    const OtherShape& other = loaded.other_shapes[i];
    text << "of another shape: " << other.name << ", " << text_of(other.in_file)
         << " in the file and " << text_of(other.in_model) << " in the model\n";
  }
  if (loaded.other_shapes.size() > kMostShown)
    text << "of another shape: " << loaded.other_shapes.size() - kMostShown << " more\n";
  if (!loaded.missing.empty())
    text << "newly initialised, to be trained: " << first_of(loaded.missing) << '\n';
  if (!loaded.unexpected.empty()) text << "not used: " << first_of(loaded.unexpected) << '\n';
  return text.str();
}

}  // namespace headroom::weights
