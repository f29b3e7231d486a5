#include "headroom/recipe/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/data/image_set.h"
#include "headroom/data/masked_tokens.h"
#include "headroom/data/synthetic.h"
#include "headroom/data/token_file.h"
#include "headroom/model/positions.h"
#include "headroom/model/tasks.h"
#include "headroom/train/model_objective.h"

namespace headroom::recipe {
namespace {

namespace fs = std::filesystem;
using data::Split;

struct Sets {
  std::shared_ptr<data::Dataset> train, evaluation;  // `evaluation` may be null
  std::int64_t outputs = 0;
  std::vector<std::string> notes = {};
};

std::int64_t side_of(const config::Training& training) {
  return model::image_side(training.model.config, training.settings);
}

std::int64_t length_of(const config::Training& training) {
  const std::int64_t length = model::sequence_length(training.model.config, training.settings);
  model::check_sequence(training.model.config, length);
  return length;
}

fs::path folder_of(const config::Training& training) {
  return training.config.text("data_dir");
}

Sets images_of(const config::Training& training) {
  const std::string name = training.config.text("dataset");
  const auto part = [&](Split split) -> std::shared_ptr<data::ImageSet> {
    const data::ImageOptions options{.side = side_of(training),
                                     .augment = split == Split::train,
                                     .skip_damaged = training.config.yes("skip_damaged")};
    if (name == "flowers102") return data::flowers102(folder_of(training), split, options);
    if (name == "cub200") return data::cub200(folder_of(training), split, options);
    return data::image_folder(folder_of(training), split, options);
  };
  const auto train = part(Split::train);
  const auto classes = static_cast<std::int64_t>(train->classes().size());
  if (classes < 2)
    throw InputError(expectation(folder_of(training).string(), "two classes or more", "one"));
  if (const auto asked = training.config.optional_whole("num_classes"); asked && *asked < classes)
    throw UsageError(expectation("num_classes",
                                 fmt::format("at least the {} classes of {}", classes, name),
                                 std::to_string(*asked)));
  const auto evaluation = part(Split::validation);
  Sets sets{train, evaluation, classes, train->notes()};
  for (const std::string& note : evaluation->notes()) sets.notes.push_back(note);
  if (evaluation->size() > 0) return sets;
  sets.evaluation = nullptr;
  sets.notes.emplace_back("no evaluation: no class has a second image to evaluate on");
  return sets;
}

// ---- Texts ----

bool has_masks(const config::Training& training) {
  return training.settings.task == model::Task::masked_lm;
}

// For a masked model: the same texts with some of their tokens hidden.
void mask(Sets& sets, const data::MaskOptions& options) {
  sets.train = data::masked_tokens(sets.train, options);
  if (sets.evaluation) sets.evaluation = data::masked_tokens(sets.evaluation, options);
  sets.notes.push_back(
      fmt::format("15 % of the tokens are to be predicted: most of them hidden behind token {}, "
                  "others replaced or left",
                  options.mask_token));
}

// The usual ids: [MASK] of Google's vocabularies, <mask> of RoBERTa's.
std::string usual_mask_token(const std::string& type) {
  return type == "roberta" ? "mask_token_id=50264, roberta-base's"
                           : "mask_token_id=103, bert-base-uncased's";
}

data::MaskOptions mask_options_of(const config::Training& training, const data::TokenFile& file) {
  const model::ModelConfig& model = training.model.config;
  const std::int64_t vocabulary = model.at_least_1("vocab_size");
  const std::optional<std::int64_t> given = training.config.optional_whole("mask_token_id"),
                                    id = given ? given : file.mask_token();
  if (!id)
    throw InputError(
        expectation("tokens_of",
                    fmt::format("mask_token_id, the token that hides others, as key or in "
                                "train.bin.json: {} models are trained with masks",
                                model.type()),
                    "none", usual_mask_token(model.type())));
  if (*id >= vocabulary)
    throw InputError(expectation(
        "tokens_of", fmt::format("mask_token_id below {}, the model's tokens", vocabulary),
        std::to_string(*id)));
  data::MaskOptions options{.mask_token = *id, .vocabulary = vocabulary};
  if (file.document_end()) options.never = {*file.document_end()};
  return options;
}

Sets tokens_of(const config::Training& training) {
  const fs::path folder = folder_of(training);
  data::TokenOptions options{.seq = length_of(training), .mask = training.config.yes("loss_mask")};
  // A gpt-tiny gets the vocabulary of its data, within reason.
  const bool is_tiny = training.config.text("model") == "gpt-tiny";
  options.vocabulary = is_tiny ? 1 << 20 : training.model.config.at_least_1("vocab_size");
  const bool is_file = fs::is_regular_file(folder);
  const fs::path train = is_file ? folder : folder / training.config.text("train_data");
  const fs::path evaluation = folder / training.config.text("val_data");
  Sets sets;
  const auto open = [&](const fs::path& file) {
    auto tokens = std::make_shared<data::TokenFile>(file, options);
    tokens->check();
    sets.outputs = std::max(sets.outputs, tokens->vocabulary().value_or(tokens->highest() + 1));
    return tokens;
  };
  const auto tokens = open(train);
  sets.train = tokens;
  if (!is_file && fs::exists(evaluation)) sets.evaluation = open(evaluation);
  if (has_masks(training)) mask(sets, mask_options_of(training, *tokens));
  return sets;
}

Sets synthetic_of(const config::Training& training) {
  const auto seed = static_cast<std::uint64_t>(training.config.whole("seed"));
  constexpr std::int64_t kLeast = 1024, kEvaluation = 128;
  // A batch at least.
  const std::int64_t train_size =
      training.config.optional_whole("examples")
          .value_or(std::max(kLeast, training.config.whole("batch_size") *
                                         training.config.whole("gradient_accumulation_steps")));
  if (training.on_images) {
    const std::int64_t classes = training.config.optional_whole("num_classes").value_or(10);
    const data::ImageOptions image{.side = side_of(training)};
    return {data::synthetic_images(
                {.classes = classes, .size = train_size, .seed = seed, .image = image}),
            data::synthetic_images({.classes = classes,
                                    .size = kEvaluation,
                                    .seed = seed,
                                    .split = Split::validation,
                                    .image = image}),
            classes};
  }
  const std::int64_t all = training.model.config.at_least_1("vocab_size"),
                     outputs = std::min<std::int64_t>(256, all);
  const bool masks = has_masks(training);  // then the last token is the one that hides others
  const data::SyntheticTokens texts{
      .vocabulary = std::max<std::int64_t>(1, outputs - (masks ? 1 : 0)),
      .seq = length_of(training),
      .size = train_size,
      .seed = seed};
  data::SyntheticTokens others = texts;
  others.size = kEvaluation;
  others.split = Split::validation;
  Sets sets{data::synthetic_tokens(texts), data::synthetic_tokens(others), outputs};
  if (masks) mask(sets, {.mask_token = outputs - 1, .vocabulary = outputs});
  if (training.settings.task == model::Task::seq2seq_lm)
    sets.notes.emplace_back("the targets are the inputs: the model learns to copy");
  return sets;
}

std::string position_text(const data::Position& position) {
  return fmt::format("{} {}", position.epoch, position.example);
}
data::Position position_from(const std::string& text) {
  data::Position position;
  char* rest = nullptr;
  position.epoch = std::strtoll(text.c_str(), &rest, 10);
  position.example = std::strtoll(rest, nullptr, 10);
  return position;
}

}  // namespace

Data data_of(const config::Training& training, bool pinned) {
  const std::string name = training.config.text("dataset");
  const Sets sets = name == "synthetic" ? synthetic_of(training)
                    : name == "tokens"  ? tokens_of(training)
                                        : images_of(training);
  const std::int64_t batch = training.config.whole("batch_size");
  data::LoaderOptions options{
      .batch_size = batch * training.config.whole("gradient_accumulation_steps"),
      .shuffle = true,
      .seed = static_cast<std::uint64_t>(training.config.whole("seed")),
      .workers = static_cast<int>(training.config.whole("num_workers")),
      .pinned = pinned};
  Data all;
  all.images = std::dynamic_pointer_cast<const data::ImageSet>(sets.train);
  all.evaluation_images = std::dynamic_pointer_cast<const data::ImageSet>(sets.evaluation);
  all.outputs = training.config.optional_whole("num_classes").value_or(sets.outputs);
  const std::int64_t size = sets.train->size();
  all.words = fmt::format("{}: {} to train on", name, size);
  if (options.batch_size > size) {
    all.words += fmt::format(", fewer than a batch of {}: all at once", options.batch_size);
    options.batch_size = size;
  }
  all.train = std::make_shared<data::Loader>(sets.train, options);
  if (sets.evaluation) {
    options.batch_size = training.config.optional_whole("eval_batch_size").value_or(batch);
    options.shuffle = false;
    all.evaluation = std::make_shared<data::Loader>(sets.evaluation, options);
    all.words += fmt::format(", {} to evaluate on", sets.evaluation->size());
  }
  for (const std::string& note : sets.notes) all.words += "\n" + note;
  return all;
}

train::Batches batches_of(const std::shared_ptr<data::Loader>& loader,
                          const config::Training& training) {
  const bool on_images = training.on_images;
  const bool is_pure = training.settings.dtype == model::Dtype::bfloat16;
  return {
      .next = [loader, on_images, is_pure]() -> train::Tensors {
        const data::Batch batch = loader->next();
        models::Batch taken;
        (on_images ? taken.pixels : taken.tokens) = batch.tensors.front();
        if (on_images && is_pure) taken.pixels = taken.pixels.to(at::kBFloat16);
        taken.labels = batch.tensors.back();
        return train::tensors_of(taken);
      },
      .per_epoch = loader->batches_per_epoch(),
      .position = [loader] { return position_text(loader->position()); },
      .go_to = [loader](const std::string& place) { loader->set_position(position_from(place)); }};
}

}  // namespace headroom::recipe
