#include <numeric>

#include "headroom/model/shapes.h"

namespace headroom::model {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& depths) {
  return std::accumulate(depths.begin(), depths.end(), std::int64_t{0});
}

}  // namespace

std::int64_t layer_count(const ModelConfig& config) {
  const std::string& type = config.type();
  if (type == "gpt2") return Gpt2Shape(config).layers;
  if (type == "gpt_neo") return GptNeoShape(config).layers;
  if (type == "gpt_neox") return GptNeoXShape(config).layers;
  if (type == "opt") return OptShape(config).layers;
  if (type == "phi") return PhiShape(config).layers;
  if (type == "bert" || type == "roberta") return BertShape(config).layers;
  if (type == "distilbert") return DistilbertShape(config).layers;
  if (type == "vit" || type == "deit") return VitShape(config).layers;
  if (type == "resnet") return sum(ResnetShape(config).depths);
  if (type == "convnext") return sum(ConvnextShape(config).depths);
  if (type == "t5") return T5Shape(config).encoder_layers + T5Shape(config).decoder_layers;
  return LlamaShape(config).layers;
}

}  // namespace headroom::model
