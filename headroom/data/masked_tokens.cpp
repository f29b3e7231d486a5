#include "headroom/data/masked_tokens.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/data/detail/random.h"
#include "headroom/data/detail/tensors.h"

namespace headroom::data {
namespace {

constexpr std::int64_t kNotPredicted = -100;

void check_masking(const MaskOptions& options) {
  const auto refuse = [](const std::string& expected, const std::string& received) {
    throw UsageError(expectation("masked_tokens", expected, received));
  };
  if (options.vocabulary < 1)
    refuse("at least one token in the vocabulary", std::to_string(options.vocabulary));
  if (options.mask_token < 0 || options.mask_token >= options.vocabulary)
    refuse("a mask token below " + std::to_string(options.vocabulary),
           std::to_string(options.mask_token));
  if (!(options.share > 0 && options.share <= 1))
    refuse("a share above 0, at most 1", std::to_string(options.share));
  if (!(options.hidden >= 0 && options.random >= 0 && options.hidden + options.random <= 1))
    refuse("shares of 0 to 1 together", std::to_string(options.hidden + options.random));
}

class MaskedTokens : public Dataset {
 public:
  MaskedTokens(std::shared_ptr<const Dataset> texts, MaskOptions options)
      : texts_(std::move(texts)), options_(std::move(options)) {}

  [[nodiscard]] std::int64_t size() const override { return texts_->size(); }

  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t seed) const override {
    const Tensors whole = texts_->example(index, seed);
    const std::int64_t length = whole.front().numel();
    const auto* const token = whole.front().const_data_ptr<std::int64_t>();
    const auto* const label = whole.back().const_data_ptr<std::int64_t>();
    const at::Tensor inputs = detail::empty({length}, at::kLong),
                     labels = detail::empty({length}, at::kLong);
    auto* const input = inputs.mutable_data_ptr<std::int64_t>();
    auto* const wanted = labels.mutable_data_ptr<std::int64_t>();
    std::copy_n(token, length, input);
    std::fill_n(wanted, length, kNotPredicted);
    detail::Dice dice(seed);
    for (const std::int64_t place : chosen(token, label, length, dice)) {
      wanted[place] = label[place];
      input[place] = replacement(token[place], dice);
    }
    return {inputs, labels};
  }

 private:
  [[nodiscard]] bool may_be_chosen(std::int64_t token, std::int64_t label) const {
    return label != kNotPredicted && token != options_.mask_token &&
           std::find(options_.never.begin(), options_.never.end(), token) == options_.never.end();
  }

  // Places without one twice: the beginning of a shuffle.
  [[nodiscard]] std::vector<std::int64_t> chosen(const std::int64_t* token,
                                                 const std::int64_t* label, std::int64_t length,
                                                 detail::Dice& dice) const {
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < length; ++i)
      if (may_be_chosen(token[i], label[i])) places.push_back(i);
    const auto all = static_cast<std::int64_t>(places.size());
    const auto wanted =
        static_cast<std::int64_t>(std::lround(options_.share * static_cast<double>(all)));
    const std::int64_t count = std::min(all, std::max<std::int64_t>(1, wanted));
    for (std::int64_t i = 0; i < count; ++i)
      std::swap(places[static_cast<std::size_t>(i)],
                places[static_cast<std::size_t>(i + dice.below(all - i))]);
    places.resize(static_cast<std::size_t>(count));
    return places;
  }

  [[nodiscard]] std::int64_t replacement(std::int64_t token, detail::Dice& dice) const {
    const double part = dice.unit();
    if (part < options_.hidden) return options_.mask_token;
    return part < options_.hidden + options_.random ? dice.below(options_.vocabulary) : token;
  }

  std::shared_ptr<const Dataset> texts_;
  MaskOptions options_;
};

}  // namespace

std::shared_ptr<Dataset> masked_tokens(std::shared_ptr<const Dataset> texts,
                                       const MaskOptions& options) {
  check_masking(options);
  return std::make_shared<MaskedTokens>(std::move(texts), options);
}

}  // namespace headroom::data
