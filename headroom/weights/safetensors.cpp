#include "headroom/weights/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/detail/safetensors_file.h"
#include "headroom/weights/detail/safetensors_names.h"
#include "headroom/weights/detail/stored_weight.h"

namespace headroom::weights {
namespace {

using at::Tensor;
using detail::Checkpoint;
using detail::CheckpointTensor;
using detail::Match;
using detail::Place;
using detail::State;
using detail::StoredTensors;
using detail::StoredWeight;

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ", ") + "]";
}

bool is_whole(at::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true);
}

void check_type(const StoredWeight& stored, const Tensor& parameter) {
  if (stored.is_quantised()) return;
  const bool whole = is_whole(parameter.scalar_type());
  if (is_whole(stored.type()) != whole)
    stored.refuse(whole ? "whole numbers" : "floats",
                  std::string(stored.tensor().tensor->type->name));
}

// A parameter of the model and the stored tensors that make it up, in the order of its rows.
struct Reading {
  Tensor parameter;
  bool transposed = false;
  std::size_t places = 0;  // in the model
  std::map<std::int64_t, StoredWeight> parts;

  [[nodiscard]] bool is_stored_packed() const { return parts.begin()->second.is_quantised(); }
  // Neither memory nor a packed form is needed before it is read.
  [[nodiscard]] bool takes_stored_form() const {
    return is_stored_packed() && nn::is_without_memory(parameter);
  }
};

std::vector<std::int64_t> shape_of(const StoredWeight& stored, const Place& place) {
  std::vector<std::int64_t> shape = stored.shape();
  if (stored.is_quantised() && place.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

// Lists what is to be read, in the order of the files. Checks all of it before any is read.
class Readings {
 public:
  Readings(const StoredTensors& all, const std::vector<std::string>& names, const State& state,
           Match& match, const LoadOptions& options, Loaded& loaded) {
    for (const Place& place : state.tensors) {
      ++of(place).places;
      const auto found = match.found.find(place.name);
      if (found != match.found.end())
        add(StoredWeight(all, names[found->second]), place, match, options, loaded);
    }
    check_whole(options.quantise.has_value());
    sort_as_stored();
  }

  [[nodiscard]] const std::vector<Reading>& all() const { return all_; }

 private:
  Reading& of(const Place& place) {
    const auto [at, is_new] = index_.emplace(place.parameter.unsafeGetTensorImpl(), all_.size());
    if (is_new) all_.push_back({place.parameter, place.transposed, 0, {}});
    return all_[at->second];
  }

  void add(StoredWeight stored, const Place& place, Match& match, const LoadOptions& options,
           Loaded& loaded) {
    if (const auto shape = shape_of(stored, place); shape != place.sizes()) {
      if (!options.skip_other_shapes)
        stored.refuse(text_of(place.sizes()), text_of(shape),
                      "the config.json that belongs to these weights");
      loaded.other_shapes.push_back({place.name, shape, place.sizes()});
      match.missing.push_back(place.name);
      return;
    }
    check_type(stored, place.parameter);
    ++loaded.tensors;
    loaded.bytes += stored.bytes();
    of(place).parts.emplace(place.first, std::move(stored));
  }

  // Packed experts are one matrix.
  void check_whole(bool will_be_packed) {
    for (const Reading& each : all_)
      if (!each.parts.empty() && each.parts.size() < each.places &&
          (will_be_packed || !is_plain(each.parameter)))
        each.parts.begin()->second.refuse("all experts beside it", "some of them");
    std::erase_if(all_, [](const Reading& each) { return each.parts.empty(); });
  }

  void sort_as_stored() {
    const auto position = [](const Reading& reading) {
      const CheckpointTensor& first = reading.parts.begin()->second.tensor();
      return std::pair(first.file->name(), first.tensor->begin);
    };
    std::sort(all_.begin(), all_.end(),
              [&](const Reading& a, const Reading& b) { return position(a) < position(b); });
  }
  static bool is_plain(const Tensor& parameter) {
    return nn::packed_of(parameter) == nullptr && !nn::is_without_memory(parameter);
  }

  std::vector<Reading> all_;
  std::map<const c10::TensorImpl*, std::size_t> index_;
};

void read(const Reading& reading, Loaded& loaded) {
  const bool was_packed = nn::packed_of(reading.parameter) != nullptr;
  const std::size_t parts = reading.parts.size();
  if (parts < reading.places) {  // of experts in memory
    const Tensor rows = reading.parameter.detach().view({-1, reading.parameter.size(-1)});
    for (const auto& [first, part] : reading.parts)
      part.copy_into(rows.narrow(0, first, part.shape()[0]));
    return;
  }
  std::vector<StoredWeight> from;
  for (const auto& [first, part] : reading.parts) from.push_back(part);
  detail::read_weight(reading.parameter, from, reading.transposed);
  if (!reading.is_stored_packed()) {
    loaded.packed += was_packed ? 1 : 0;
    return;
  }
  loaded.quantised += parts;
  if (nn::packed_of(reading.parameter) == nullptr) loaded.dequantised += parts;
}

// Weights that are quantised get memory for their packed form, and others their own.
void read_all(models::Model& model, const std::vector<Reading>& readings,
              const LoadOptions& options, Loaded& loaded) {
  std::vector<bool> is_read(readings.size());
  for (std::size_t i = 0; i < readings.size(); ++i)
    if (readings[i].takes_stored_form()) {
      read(readings[i], loaded);
      is_read[i] = true;
    }
  if (options.quantise) nn::quantise(model.module(), *options.quantise);
  nn::give_memory(model.module());
  for (std::size_t i = 0; i < readings.size(); ++i)
    if (!is_read[i]) read(readings[i], loaded);
  if (options.quantise && loaded.quantised > loaded.dequantised)
    nn::quantise(model.module(), *options.quantise);
}

std::vector<std::string> in_file_order(const Checkpoint& checkpoint,
                                       const std::vector<std::string>& names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  std::vector<std::string> ordered;
  for (const CheckpointTensor& each : checkpoint.tensors())
    if (wanted.count(each.tensor->name) > 0) ordered.push_back(each.tensor->name);
  return ordered;
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
  StoredTensors all;
  for (const CheckpointTensor& each : checkpoint.tensors()) all[each.tensor->name] = each;
  const std::vector<std::string> names = in_file_order(checkpoint, detail::weights_in(all));
  Match match = detail::matched(names, state, model.config().type(), checkpoint.name());
  if (match.found.empty() && !state.tensors.empty())
    throw InputError(expectation("load",
                                 "weights of a " + model.config().type() + " model in " +
                                     checkpoint.name() + ", such as " + state.tensors.front().name,
                                 names.empty() ? "no tensors" : first_of(names)));
  Loaded loaded{.from = checkpoint.name()};
  const Readings readings(all, names, state, match, options, loaded);
  read_all(model, readings.all(), options, loaded);
  models::initialise(model, match.missing);
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
  if (loaded.packed > 0) text << "quantised as they were read: " << loaded.packed << " weights\n";
  if (loaded.quantised > 0)
    text << "quantised in the files: " << loaded.quantised << " weights"
         << (loaded.dequantised > 0 ? ", dequantised here, because the model is not quantised" : "")
         << '\n';
  if (!loaded.missing.empty())
    text << "newly initialised, to be trained: " << first_of(loaded.missing) << '\n';
  if (!loaded.unexpected.empty()) text << "not used: " << first_of(loaded.unexpected) << '\n';
  return text.str();
}

}  // namespace headroom::weights
