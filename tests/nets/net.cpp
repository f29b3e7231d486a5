#include "tests/nets/net.h"

#include <stdexcept>

namespace headroom::nets {

std::shared_ptr<Net> make_net(const std::string& name, const Sizes& sizes,
                              std::optional<c10::Device> second_half) {
  if (name == "mlp") return make_mlp(sizes, second_half);
  if (name == "gpt") return make_gpt(sizes, second_half);
  if (name == "llama") return make_llama(sizes);
  if (name == "encoder_decoder") return make_encoder_decoder(sizes);
  if (name == "rnn") return make_rnn(sizes);
  if (name == "resnet") return make_resnet(sizes);
  if (name == "vit") return make_vit(sizes);
  if (name == "moe") return make_moe(sizes);
  if (name == "text") return make_text(sizes);
  if (name == "autoencoder") return make_autoencoder(sizes);
  throw std::invalid_argument("no net '" + name + "'");
}

Batch random_batch(const std::vector<Input>& inputs, torch::Dtype floats) {
  Batch batch;
  for (const Input& input : inputs)
    batch.push_back(input.below > 0 ? torch::randint(input.below, input.sizes, torch::kLong)
                                    : torch::randn(input.sizes).to(floats));
  return batch;
}

Batch empty_batch(const std::vector<Input>& inputs, torch::Dtype floats, c10::Device device) {
  Batch batch;
  for (const Input& input : inputs)
    batch.push_back(torch::empty(
        input.sizes, torch::device(device).dtype(input.below > 0 ? torch::kLong : floats)));
  return batch;
}

}  // namespace headroom::nets
