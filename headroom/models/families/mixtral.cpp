// Mixtral (modeling_mixtral.py of transformers): Mistral's decoder, where each token goes to a few
// of many feed-forward blocks, the experts.
//
// In 4.57 the data decides which tokens an expert gets. Without data (a shape-only card, meta)
// tokens are assumed to spread evenly: each expert gets tokens x experts per token / experts rows,
// and the first experts one more if that is not a whole number. Real routing is uneven, but the sum
// over the experts is the same, and so nearly is what they keep for the backward pass.
#include <ATen/ATen.h>

#include <optional>

#include "headroom/models/families/decoder.h"
#include "headroom/nn/stacked_experts.h"

namespace headroom::models::detail {
namespace mixtral {
namespace {

using decoder::GatedMlp;
using decoder::Plan;
using decoder::Shape;
using model::ModelConfig;
using nn::Linear;

struct Routing {
  std::int64_t experts, each;  // how many there are, and how many a token goes to
  double jitter;               // noise on the router's input while training
};

bool has_data(const Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

// The tokens of one expert: their rows, and which of its choices each token sends there.
struct Share {
  Tensor choices, tokens;
};

void jitter(const Tensor& x, const Routing& routing, bool training) {
  if (training && routing.jitter > 0)
    x.mul_(at::empty_like(x).uniform_(1 - routing.jitter, 1 + routing.jitter));
}

class Experts : public torch::nn::Module {
 public:
  Experts(const Shape& shape, const Routing& routing, const nn::Activation& function)
      : routing_(routing),
        gate_(child<Linear>(*this, "gate", shape.width, routing.experts, false)),
        experts_(child<nn::StackedExperts>(*this, "experts", routing.experts, shape.width,
                                           shape.inner, function)) {}

  Tensor operator()(const Tensor& x, const LayerInputs& with) const {
    jitter(x, routing_, is_training());
    const Tensor states = x.view({-1, x.size(-1)});
    const Tensor logits = (*gate_)(states);
    if (with.routes != nullptr) with.routes->push_back(logits);
    auto [shares, chosen] = at::topk(at::softmax(logits.to(at::kFloat), -1), routing_.each);
    shares.div_(shares.sum(-1, true));
    return (*experts_)(states, chosen, shares).reshape(x.sizes());
  }

 private:
  const Routing routing_;
  const std::shared_ptr<Linear> gate_;
  const std::shared_ptr<nn::StackedExperts> experts_;
};

// Those of 4.57: one after the other.
class OlderExperts : public torch::nn::Module {
 public:
  OlderExperts(const Shape& shape, const Routing& routing, const nn::Activation& function)
      : routing_(routing),
        gate_(child<Linear>(*this, "gate", shape.width, routing.experts, false)),
        experts_(child<nn::List<GatedMlp>>(*this, "experts")) {
    const GatedMlp::Names names = {.gate = "w1", .up = "w3", .down = "w2", .down_is_second = true};
    for (std::int64_t i = 0; i < routing.experts; ++i)
      experts_->add(std::make_shared<GatedMlp>(shape, function, names));
  }

  Tensor operator()(const Tensor& x, const LayerInputs& with) const {
    jitter(x, routing_, is_training());
    const Tensor states = x.view({-1, x.size(-1)});
    const Tensor logits = (*gate_)(states);
    if (with.routes != nullptr) with.routes->push_back(logits);
    Tensor shares = at::softmax(logits, 1, at::kFloat);
    Tensor chosen;
    std::tie(shares, chosen) = at::topk(shares, routing_.each);
    shares.div_(shares.sum(-1, true));
    shares = shares.to(states.scalar_type());
    return by_experts(states, shares, chosen).reshape(x.sizes());
  }

 private:
  [[nodiscard]] Tensor by_experts(const Tensor& states, const Tensor& shares,
                                  const Tensor& chosen) const {
    Tensor sum = at::zeros(states.sizes(), states.options());
    const Tensor mask = at::one_hot(chosen, routing_.experts).permute({2, 1, 0});
    const Tensor hit = experts_hit(mask);
    // Like Python's loop variables, alive until the next expert's replace them.
    Share share;
    Tensor input, output;
    for (std::int64_t i = 0; i < hit.size(0); ++i) {
      const std::int64_t expert = has_data(hit) ? hit[i].item<std::int64_t>() : i;
      share = share_of(expert, hit[i], mask);
      input = at::index(states.unsqueeze(0), {std::nullopt, share.tokens});
      input = input.reshape({-1, states.size(1)});
      output = weighted(expert, input, shares, share);
      sum.index_add_(0, share.tokens, output.to(states.scalar_type()));
    }
    return sum;
  }

  [[nodiscard]] Tensor weighted(std::int64_t expert, const Tensor& input, const Tensor& shares,
                                const Share& share) const {
    const Tensor output = (*(*experts_)[static_cast<std::size_t>(expert)])(input);
    const Tensor weights = at::index(shares.unsqueeze(2), {share.tokens, share.choices});
    return output * weights;
  }

  // The experts that get any token, [experts, 1].
  [[nodiscard]] Tensor experts_hit(const Tensor& mask) const {
    Tensor tokens = mask.sum({-1, -2});
    tokens = tokens > 0;
    if (has_data(tokens)) return at::nonzero(tokens);
    const std::int64_t rows = mask.size(1) * mask.size(2);
    return at::empty({std::min(rows, routing_.experts), 1}, mask.options());
  }

  [[nodiscard]] Share share_of(std::int64_t expert, const Tensor& index, const Tensor& mask) const {
    const Tensor chosen = at::index(mask, {index}).squeeze(0);  // [experts a token, tokens]
    const std::int64_t rows = chosen.numel(),
                       even = rows / routing_.experts + (expert < rows % routing_.experts ? 1 : 0);
    const Tensor places =
        has_data(chosen) ? at::nonzero(chosen) : at::empty({even, 2}, chosen.options());
    return {places.select(1, 0), places.select(1, 1)};
  }

  const Routing routing_;
  const std::shared_ptr<Linear> gate_;
  const std::shared_ptr<nn::List<GatedMlp>> experts_;
};

template <typename Block>
std::shared_ptr<decoder::Layer> made_layer(const Shape& shape, const Routing& routing,
                                           const nn::Activation& function) {
  return std::make_shared<decoder::PlainLayer<nn::RmsNorm, decoder::SelfAttention, Block>>(
      shape, [&] { return std::make_shared<Block>(shape, routing, function); }, "block_sparse_moe");
}

// Expands a mask [batch, length] to the shape of `like`, which has a row per token and layer.
Tensor spread(const Tensor& mask, const Tensor& like) {
  std::vector<std::int64_t> sizes = {like.size(0) / mask.numel(), mask.size(0), mask.size(1)};
  Tensor wide = mask.unsqueeze(0);
  for (std::int64_t i = 1; i < like.dim(); ++i) {
    wide = wide.unsqueeze(-1);
    sizes.push_back(like.size(i));
  }
  return wide.expand(sizes).reshape(like.sizes());
}

// The mean over the first dimension of the values where the mask is 1.
Tensor masked_mean(const Tensor& values, const Tensor& mask) {
  if (!mask.defined()) return at::mean(values, 0);
  const Tensor wide = spread(mask, values);
  Tensor sum = values * wide;
  sum = at::sum(sum, 0);
  return sum / at::sum(wide, 0);
}

// load_balancing_loss_func: small if all experts get the same number of tokens.
Tensor balance_loss(const std::vector<Tensor>& routes, const Routing& routing, const Tensor& mask) {
  const at::TensorOptions options = routes.at(0).options().dtype(at::kFloat);
  Tensor tokens = at::zeros({routing.experts}, options);
  Tensor probabilities = at::zeros({routing.experts}, options);
  const Tensor seen = mask.defined() ? mask.reshape(-1).to(at::kFloat) : Tensor();
  Tensor rows = at::zeros({}, options);
  for (const Tensor& logits : routes) {
    const Tensor shares = at::softmax(logits, -1);
    const Tensor chosen = std::get<1>(at::topk(shares, routing.each)).reshape(-1);
    if (seen.defined()) {
      const Tensor weights = seen.repeat_interleave(routing.each);
      tokens = tokens + at::zeros({routing.experts}, options).scatter_add_(0, chosen, weights);
      probabilities = probabilities + (shares.to(at::kFloat) * seen.unsqueeze(-1)).sum(0);
      rows = rows + seen.sum();
    } else {
      tokens = tokens + nn::counted(chosen, routing.experts);
      probabilities = probabilities + shares.to(at::kFloat).sum(0);
      rows = rows + shares.size(0);
    }
  }
  tokens = tokens / rows;
  probabilities = probabilities / rows;
  return at::sum(tokens * probabilities.unsqueeze(0)) * routing.experts;
}

// The same in 4.57, over the logits of all layers at once.
Tensor older_balance_loss(const std::vector<Tensor>& routes, const Routing& routing,
                          const Tensor& mask) {
  const Tensor logits = at::cat(routes, 0);
  const Tensor shares = at::softmax(logits, -1);
  const Tensor chosen = std::get<1>(at::topk(shares, routing.each));
  const Tensor experts = at::one_hot(chosen, routing.experts);
  const Tensor tokens = masked_mean(experts.to(at::kFloat), mask);
  const Tensor probabilities = masked_mean(shares, mask);
  return at::sum(tokens * probabilities.unsqueeze(0)) * routing.experts;
}

Plan plan(const ModelConfig& config, Transformers transformers) {
  const bool newest = transformers == Transformers::v5;
  const Shape shape(config);
  const Routing routing = {
      .experts = shape.experts, .each = shape.experts_each, .jitter = shape.router_jitter};
  const nn::Activation function = nn::activation(shape.function);
  const auto layer = [=] {
    return (newest ? made_layer<Experts> : made_layer<OlderExperts>)(shape, routing, function);
  };
  Plan plan = {.shape = shape, .layer = layer, .norm = decoder::norm_like<nn::RmsNorm>(shape)};
  plan.head.collects_routes = shape.collects_routes;
  if (shape.collects_routes)
    plan.head.routing_loss = [=, by = shape.routing_loss](const std::vector<Tensor>& routes,
                                                          const Batch& batch) {
      return by * (newest ? balance_loss : older_balance_loss)(routes, routing, batch.mask);
    };
  return plan;
}

}  // namespace
}  // namespace mixtral

Build mixtral_family() {
  return decoder::family(mixtral::plan);
}

}  // namespace headroom::models::detail
