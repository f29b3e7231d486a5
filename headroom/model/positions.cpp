#include "headroom/model/positions.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "headroom/base/error.h"

namespace headroom::model {
namespace {

constexpr std::int64_t kUsual = 512;
constexpr std::int64_t kMostPixels = 1 << 20;  // larger than any side

// Types that learn one embedding row per position.
constexpr std::array<std::string_view, 6> kLearned{"gpt2", "gpt_neo", "opt",
                                                   "bert", "roberta", "distilbert"};

}  // namespace

std::optional<std::int64_t> longest_sequence(const ModelConfig& config) {
  for (const char* key : {"n_positions", "max_position_embeddings"}) {
    if (!config.has(key) || config.is_null(key)) continue;
    const std::int64_t positions = config.at_least_1(key);
    // RoBERTa counts positions from the one after padding.
    return config.type() == "roberta" ? positions - config.count("pad_token_id") - 1 : positions;
  }
  return {};
}

std::int64_t sequence_length(const ModelConfig& config, const Settings& settings) {
  return settings.seq.value_or(std::min(kUsual, longest_sequence(config).value_or(kUsual)));
}

std::int64_t image_side(const ModelConfig& config, const Settings& settings) {
  if (settings.image) return *settings.image;
  return config.has("image_size") ? config.at_least_1("image_size") : 224;
}

void settle_sizes(const ModelConfig& config, Settings& settings) {
  if (*settings.task == Task::image_classification) {
    settings.image = image_side(config, settings);
    settings.seq.reset();
  } else {
    settings.seq = sequence_length(config, settings);
    settings.image.reset();
  }
  if (*settings.task == Task::seq2seq_lm)
    settings.target_seq = settings.target_seq.value_or(*settings.seq);
  else
    settings.target_seq.reset();
}

void check_sequence(const ModelConfig& config, std::int64_t length) {
  if (length < 1)
    throw UsageError(expectation("batch", "at least one token a row", std::to_string(length), "1"));
  const bool learned = std::find(kLearned.begin(), kLearned.end(), config.type()) != kLearned.end();
  const auto most = longest_sequence(config);
  if (learned && most && length > *most)
    throw UsageError(expectation(
        "batch",
        "at most " + std::to_string(*most) + " tokens a row, for which the model has positions",
        std::to_string(length), "a shorter --seq"));
  if (!config.has("chunk_size_feed_forward")) return;
  const std::int64_t chunk = config.count("chunk_size_feed_forward");
  if (chunk != 0 && length % chunk != 0)
    throw UsageError(expectation("chunk_size_feed_forward",
                                 "a length that is a multiple of " + std::to_string(chunk),
                                 std::to_string(length)));
}

void check_image(const ModelConfig& config, const Settings& settings) {
  if (config.type() != "convnext") return;
  std::int64_t least = config.at_least_1("patch_size");
  for (long long stage = 1; stage < config.at_least_1("num_stages") && least < kMostPixels; ++stage)
    least *= 2;
  const std::int64_t side = image_side(config, settings);
  if (side >= least) return;
  const std::string expected = "images of at least " + std::to_string(least) + " pixels a side";
  if (settings.image) throw UsageError(expectation("--image", expected, std::to_string(side)));
  throw InputError(expectation("read_config", expected + " for `image_size` in " + config.source(),
                               std::to_string(side)));
}

}  // namespace headroom::model
