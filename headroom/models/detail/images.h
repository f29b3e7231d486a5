// Shared parts of image models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

// Throws UsageError unless the batch holds images of `channels` channels and, for a model that
// takes only one size, of `side` pixels a side.
void check_images(const Batch& batch, std::int64_t channels, std::optional<std::int64_t> side = {});

// Runs modules one after the other.
template <typename Part>
[[nodiscard]] Tensor through(const nn::List<Part>& parts, Tensor states) {
  for (const auto& part : parts) states = (*part)(states);
  return states;
}

// Classifies images by the last states of a `Base`, which is made from a config, with
//   std::pair<Tensor, Tensor> operator()(const Tensor& pixels) const;  // last states, their means
//   std::int64_t width() const;                                        // of both
template <typename Base, typename Classifier = nn::Linear>
class ConvolutionalClassifier : public Net {
 public:
  ConvolutionalClassifier(const model::ModelConfig& config, const Settings& settings)
      : Net(config, Task::image_classification, settings),
        base_(child<Base>(*this, config.type(), config)),
        classifier_(child<Classifier>(*this, "classifier", base_->width(), config.labels())) {}

  Output run(const Batch& batch) override {
    check_images(batch, config().at_least_1("num_channels"));
    // transformers' output holds the last states until the loss is computed.
    const auto [last, pooled] = (*base_)(batch.pixels);
    return classified((*classifier_)(pooled), batch);
  }

 private:
  const std::shared_ptr<Base> base_;
  const std::shared_ptr<Classifier> classifier_;
};

}  // namespace headroom::models::detail
