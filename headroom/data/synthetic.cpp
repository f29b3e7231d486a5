#include "headroom/data/synthetic.h"

#include <algorithm>
#include <string>

#include "headroom/base/error.h"
#include "headroom/data/detail/language.h"
#include "headroom/data/detail/picture.h"
#include "headroom/data/detail/random.h"
#include "headroom/data/detail/scaled.h"
#include "headroom/data/detail/tensors.h"

namespace headroom::data {
namespace {

void at_least_one(const char* function, std::int64_t value, const char* what) {
  if (value < 1)
    throw UsageError(
        expectation(function, std::string("at least one ") + what, std::to_string(value)));
}

std::uint64_t seed_of(std::uint64_t seed, Split split, std::int64_t index) {
  return detail::mixed(seed, {static_cast<std::int64_t>(split), index});
}

class MadeUpTexts : public Dataset {
 public:
  explicit MadeUpTexts(const SyntheticTokens& options)
      : options_(options), language_(options.vocabulary, options.seed) {}

  [[nodiscard]] std::int64_t size() const override { return options_.size; }

  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t /*seed*/) const override {
    detail::Dice dice(seed_of(options_.seed, options_.split, index));
    const at::Tensor inputs = detail::empty({options_.seq}, at::kLong),
                     labels = detail::empty({options_.seq}, at::kLong);
    auto* const input = inputs.mutable_data_ptr<std::int64_t>();
    auto* const label = labels.mutable_data_ptr<std::int64_t>();
    std::int64_t token = language_.any(dice);
    for (std::int64_t i = 0; i < options_.seq; ++i) {
      input[i] = token;
      token = language_.after(token, dice);
      label[i] = options_.labels == TokenOptions::Labels::own ? input[i] : token;
    }
    return {inputs, labels};
  }

 private:
  SyntheticTokens options_;
  detail::Language language_;
};

class MadeUpPictures : public Dataset {
 public:
  explicit MadeUpPictures(const SyntheticImages& options) : options_(options) {}

  [[nodiscard]] std::int64_t size() const override { return options_.size; }

  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t /*seed*/) const override {
    const std::int64_t label = index % options_.classes, side = options_.image.side;
    const auto pixels_a_side = static_cast<int>(side);
    const detail::Pixels picture = detail::picture({pixels_a_side, pixels_a_side}, label,
                                                   seed_of(options_.seed, options_.split, index));
    const at::Tensor pixels = detail::empty({3, side, side}, at::kFloat);
    const auto whole = static_cast<double>(side);
    detail::scale_into(picture, {0, 0, whole, whole}, side, false,
                       {options_.image.mean, options_.image.deviation},
                       pixels.mutable_data_ptr<float>());
    return {pixels, detail::whole_number(label)};
  }

 private:
  SyntheticImages options_;
};

}  // namespace

std::shared_ptr<Dataset> synthetic_tokens(const SyntheticTokens& options) {
  at_least_one("synthetic_tokens", options.vocabulary, "token in the vocabulary");
  at_least_one("synthetic_tokens", options.seq, "token in an example");
  at_least_one("synthetic_tokens", options.size, "example");
  return std::make_shared<MadeUpTexts>(options);
}

std::shared_ptr<Dataset> synthetic_images(const SyntheticImages& options) {
  at_least_one("synthetic_images", options.classes, "class");
  at_least_one("synthetic_images", options.image.side, "pixel a side");
  at_least_one("synthetic_images", options.size, "example");
  return std::make_shared<MadeUpPictures>(options);
}

}  // namespace headroom::data
