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
template <typename Part, typename... With>
[[nodiscard]] Tensor through(const nn::List<Part>& parts, Tensor states, const With&... with) {
  for (const auto& part : parts) states = (*part)(states, with...);
  return states;
}

// Runs the layers of a stage that are here. `first`: the number of the first one, counted over all
// stages.
template <typename Layer>
[[nodiscard]] Tensor through_stage(const Net& net, const nn::List<Layer>& layers, std::size_t first,
                                   Tensor states) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (layers[i])
      states = net.run_layer(
          first + i, [layer = layers[i]](const Tensor& x) { return (*layer)(x); }, states);
  return states;
}

// Classifies images by the last states of a `Base`, which is made from a config, with
//   // Last states, and their means, if the last layer is here.
//   std::pair<Tensor, Tensor> operator()(const Net& net, const Batch& batch) const;
//   std::int64_t width() const;  // of both
template <typename Base, typename Classifier = nn::Linear>
class ConvolutionalClassifier : public Net {
 public:
  ConvolutionalClassifier(const model::ModelConfig& config, const Settings& settings)
      : Net(config, Task::image_classification, settings),
        base_(child<Base>(*this, config.type(), config, here())),
        classifier_(here().ends()
                        ? child<Classifier>(*this, "classifier", base_->width(), config.labels())
                        : nullptr) {}

  Output run(const Batch& batch) override {
    if (here().begins()) check_images(batch, config().at_least_1("num_channels"));
    // transformers' output holds the last states until the loss is computed.
    const auto [last, pooled] = (*base_)(*this, batch);
    if (!here().ends()) return handing_on(last);
    return classified((*classifier_)(pooled), batch);
  }

 private:
  const std::shared_ptr<Base> base_;
  const std::shared_ptr<Classifier> classifier_;
};

}  // namespace headroom::models::detail
