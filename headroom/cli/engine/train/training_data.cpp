// The datasets of `headroom train` (training_job.h).
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/cli/core/training_request.h"
#include "headroom/cli/engine/train/training_job.h"
#include "headroom/data/image_set.h"
#include "headroom/data/synthetic.h"
#include "headroom/data/token_file.h"
#include "headroom/model/positions.h"
#include "headroom/train/model_objective.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using data::Split;

struct Sets {
  std::shared_ptr<data::Dataset> train, evaluation;
  std::int64_t outputs = 0;
};

std::int64_t side_of(const config::Resolved& config) {
  const auto model = model_of(config).config;
  return model::image_side(model, settings_of(config, model));
}

std::int64_t length_of(const config::Resolved& config) {
  const auto model = model_of(config).config;
  const std::int64_t length = model::sequence_length(model, settings_of(config, model));
  model::check_sequence(model, length);
  return length;
}

fs::path folder_of(const config::Resolved& config) {
  return config.text("data_dir");
}

Sets images_of(const config::Resolved& config) {
  const std::string name = config.text("dataset");
  const auto part = [&](Split split) -> std::shared_ptr<data::ImageSet> {
    const data::ImageOptions options{.side = side_of(config), .augment = split == Split::train};
    if (name == "flowers102") return data::flowers102(folder_of(config), split, options);
    if (name == "cub200") return data::cub200(folder_of(config), split, options);
    return data::image_folder(folder_of(config), split, options);
  };
  const auto train = part(Split::train);
  const auto classes = static_cast<std::int64_t>(train->classes().size());
  if (classes < 2)
    throw InputError(expectation(folder_of(config).string(), "two classes or more", "one"));
  if (const auto asked = config.optional_whole("num_classes"); asked && *asked < classes)
    throw UsageError(expectation("num_classes",
                                 "at least the " + std::to_string(classes) + " classes of " + name,
                                 std::to_string(*asked)));
  return {train, part(Split::validation), classes};
}

Sets tokens_of(const config::Resolved& config) {
  const fs::path folder = folder_of(config);
  data::TokenOptions options{.seq = length_of(config), .mask = config.yes("loss_mask")};
  // A gpt-tiny gets the vocabulary of its data.
  if (config.text("model") != "gpt-tiny")
    options.vocabulary = model_of(config).config.at_least_1("vocab_size");
  const bool is_file = fs::is_regular_file(folder);
  const fs::path train = is_file ? folder : folder / config.text("train_data");
  const fs::path evaluation = folder / config.text("val_data");
  Sets sets;
  const auto tokens = std::make_shared<data::TokenFile>(train, options);
  sets.train = tokens;
  sets.outputs = tokens->vocabulary().value_or(0);
  if (!is_file && fs::exists(evaluation))
    sets.evaluation = std::make_shared<data::TokenFile>(evaluation, options);
  return sets;
}

Sets synthetic_of(const config::Resolved& config) {
  const auto seed = static_cast<std::uint64_t>(config.whole("seed"));
  constexpr std::int64_t kTrain = 1024, kEvaluation = 128;
  if (trains_on_images(config)) {
    const std::int64_t classes = config.optional_whole("num_classes").value_or(10);
    const data::ImageOptions image{.side = side_of(config)};
    return {
        data::synthetic_images({.classes = classes, .size = kTrain, .seed = seed, .image = image}),
        data::synthetic_images({.classes = classes,
                                .size = kEvaluation,
                                .seed = seed,
                                .split = Split::validation,
                                .image = image}),
        classes};
  }
  const std::int64_t length = length_of(config);
  return {data::synthetic_tokens({.seq = length, .size = kTrain, .seed = seed}),
          data::synthetic_tokens(
              {.seq = length, .size = kEvaluation, .seed = seed, .split = Split::validation}),
          256};
}

std::string position_text(const data::Position& position) {
  return std::to_string(position.epoch) + " " + std::to_string(position.example);
}
data::Position position_from(const std::string& text) {
  data::Position position;
  char* rest = nullptr;
  position.epoch = std::strtoll(text.c_str(), &rest, 10);
  position.example = std::strtoll(rest, nullptr, 10);
  return position;
}

}  // namespace

TrainingData data_of(const config::Resolved& config, bool pinned) {
  const std::string name = config.text("dataset");
  const Sets sets = name == "synthetic" ? synthetic_of(config)
                    : name == "tokens"  ? tokens_of(config)
                                        : images_of(config);
  const std::int64_t batch = config.whole("batch_size");
  data::LoaderOptions options{.batch_size = batch * config.whole("gradient_accumulation_steps"),
                              .shuffle = true,
                              .seed = static_cast<std::uint64_t>(config.whole("seed")),
                              .workers = static_cast<int>(config.whole("num_workers")),
                              .pinned = pinned};
  TrainingData all;
  all.images = std::dynamic_pointer_cast<const data::ImageSet>(sets.train);
  all.evaluation_images = std::dynamic_pointer_cast<const data::ImageSet>(sets.evaluation);
  all.outputs = config.optional_whole("num_classes").value_or(sets.outputs);
  const std::int64_t size = sets.train->size();
  all.words = name + ": " + std::to_string(size) + " to train on";
  if (options.batch_size > size) {
    all.words += ", fewer than a batch of " + std::to_string(options.batch_size) + ": all at once";
    options.batch_size = size;
  }
  all.train = std::make_shared<data::Loader>(sets.train, options);
  if (sets.evaluation) {
    options.batch_size = config.optional_whole("eval_batch_size").value_or(batch);
    options.shuffle = false;
    all.evaluation = std::make_shared<data::Loader>(sets.evaluation, options);
    all.words += ", " + std::to_string(sets.evaluation->size()) + " to evaluate on";
  }
  return all;
}

train::Batches batches_of(const std::shared_ptr<data::Loader>& loader, bool images) {
  return {
      .next = [loader, images]() -> train::Tensors {
        const data::Batch batch = loader->next();
        models::Batch taken;
        (images ? taken.pixels : taken.tokens) = batch.tensors.front();
        taken.labels = batch.tensors.back();
        return train::tensors_of(taken);
      },
      .per_epoch = loader->batches_per_epoch(),
      .position = [loader] { return position_text(loader->position()); },
      .go_to = [loader](const std::string& place) { loader->set_position(position_from(place)); }};
}

}  // namespace headroom::cli
