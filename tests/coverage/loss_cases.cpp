#include "programs.h"

namespace headroom::coverage {
namespace {

// A loss of scores in {4, 5} against one class each.
template <typename Module, typename Options>
Program to_class(Options options, Sizes sizes = {4, 5}) {
  return [=](Trial& t) -> Outputs {
    Sizes classes = sizes;
    classes.erase(classes.begin() + 1);
    const Tensor scores = t.x(sizes);
    return t.forward<Module>(options, scores, t.below(sizes[1], classes));
  };
}

// The target is no input of the gradient.
template <typename Module, typename Options>
Program to_signs(Options options, Sizes sizes = {4, 5}) {
  return [=](Trial& t) -> Outputs {
    const Tensor input = t.x(sizes);
    return t.forward<Module>(options, input, t.signs(sizes));
  };
}

template <typename Module, typename Options>
Program to_shares(Options options, Sizes sizes = {4, 5}) {
  return [=](Trial& t) -> Outputs {
    const Tensor input = t.share(sizes);
    return t.forward<Module>(options, input, t.share(sizes).detach());
  };
}

template <typename Module, typename Options>
Program of_three(Options options) {
  return [=](Trial& t) -> Outputs {
    const Tensor anchor = t.x({4, 5});
    const Tensor positive = t.x({4, 5});
    return t.forward<Module>(options, anchor, positive, t.x({4, 5}));
  };
}

Program weighted_cross_entropy(nn::CrossEntropyLossOptions options) {
  return [=](Trial& t) -> Outputs {
    const Tensor scores = t.x({4, 5});
    const Tensor classes = t.below(5, {4});
    auto weighted = options;
    return t.forward<nn::CrossEntropyLoss>(weighted.weight(t.positive({5})), scores, classes);
  };
}

Program connectionist(nn::CTCLossOptions options, bool lengths_on_card) {
  return [=](Trial& t) -> Outputs {
    const Tensor scores = t.x({8, 2, 5}).log_softmax(2);
    const Tensor targets = t.below(4, {2, 3}) + 1;
    Tensor steps = torch::tensor({8, 7});
    Tensor lengths = torch::tensor({3, 2});
    if (lengths_on_card) steps = t.put(steps), lengths = t.put(lengths);
    return t.forward<nn::CTCLoss>(options, scores, targets, steps, lengths);
  };
}

Cases losses_by_distance() {
  return {
      {"L1Loss", "", to_target<nn::L1Loss>({4, 5})},
      {"L1Loss", "of each", to_target<nn::L1Loss>({4, 5}, nn::L1LossOptions(torch::kNone))},
      {"L1Loss", "summed", to_target<nn::L1Loss>({4, 5}, nn::L1LossOptions(torch::kSum))},
      {"MSELoss", "", to_target<nn::MSELoss>({4, 5})},
      {"MSELoss", "of each", to_target<nn::MSELoss>({4, 5}, nn::MSELossOptions(torch::kNone))},
      {"MSELoss", "summed", to_target<nn::MSELoss>({4, 5}, nn::MSELossOptions(torch::kSum))},
      {"MSELoss", "of images", to_target<nn::MSELoss>({2, 3, 4, 5})},
      {"SmoothL1Loss", "", to_target<nn::SmoothL1Loss>({4, 5})},
      {"SmoothL1Loss", "of each",
       to_target<nn::SmoothL1Loss>({4, 5}, nn::SmoothL1LossOptions(torch::kNone).beta(0.5))},
      {"HuberLoss", "", to_target<nn::HuberLoss>({4, 5})},
      {"HuberLoss", "summed",
       to_target<nn::HuberLoss>({4, 5}, nn::HuberLossOptions(torch::kSum).delta(0.5))},
      {"KLDivLoss", "", to_shares<nn::KLDivLoss>(nn::KLDivLossOptions())},
      {"KLDivLoss", "of logarithms",
       to_shares<nn::KLDivLoss>(nn::KLDivLossOptions(torch::kBatchMean).log_target(true))},
      {"KLDivLoss", "of each", to_shares<nn::KLDivLoss>(nn::KLDivLossOptions(torch::kNone))},
      {"PoissonNLLLoss", "", to_shares<nn::PoissonNLLLoss>(nn::PoissonNLLLossOptions())},
      {"PoissonNLLLoss", "in full",
       to_shares<nn::PoissonNLLLoss>(nn::PoissonNLLLossOptions().log_input(false).full(true))},
      {"CosineEmbeddingLoss", "",
       [](Trial& t) {
         const Tensor one = t.x({4, 5});
         const Tensor other = t.x({4, 5});
         return t.forward<nn::CosineEmbeddingLoss>(nn::CosineEmbeddingLossOptions().margin(0.2),
                                                   one, other, t.signs({4}));
       }},
      {"MarginRankingLoss", "",
       [](Trial& t) {
         const Tensor one = t.x({4});
         const Tensor other = t.x({4});
         return t.forward<nn::MarginRankingLoss>(nn::MarginRankingLossOptions().margin(0.2), one,
                                                 other, t.signs({4}));
       }},
      {"TripletMarginLoss", "", of_three<nn::TripletMarginLoss>(nn::TripletMarginLossOptions())},
      {"TripletMarginLoss", "swapped",
       of_three<nn::TripletMarginLoss>(nn::TripletMarginLossOptions().swap(true).p(1))},
      {"TripletMarginWithDistanceLoss", "",
       of_three<nn::TripletMarginWithDistanceLoss>(nn::TripletMarginWithDistanceLossOptions())},
      {"TripletMarginWithDistanceLoss", "of a distance",
       of_three<nn::TripletMarginWithDistanceLoss>(
           nn::TripletMarginWithDistanceLossOptions()
               .distance_function(
                   [](const Tensor& a, const Tensor& b) { return (a - b).abs().amax(1); })
               .swap(true))},
  };
}

Cases losses_of_classes() {
  using Cross = nn::CrossEntropyLossOptions;
  return {
      {"BCELoss", "", to_shares<nn::BCELoss>(nn::BCELossOptions())},
      {"BCELoss", "of each", to_shares<nn::BCELoss>(nn::BCELossOptions().reduction(torch::kNone))},
      {"BCELoss", "weighted",
       [](Trial& t) {
         const Tensor input = t.share({4, 5});
         return t.forward<nn::BCELoss>(nn::BCELossOptions().weight(t.positive({5})), input,
                                       t.share({4, 5}).detach());
       }},
      {"BCEWithLogitsLoss", "", to_shares<nn::BCEWithLogitsLoss>(nn::BCEWithLogitsLossOptions())},
      {"BCEWithLogitsLoss", "of each",
       to_shares<nn::BCEWithLogitsLoss>(nn::BCEWithLogitsLossOptions().reduction(torch::kNone))},
      {"BCEWithLogitsLoss", "weighted",
       [](Trial& t) {
         const Tensor input = t.x({4, 5});
         const Tensor target = t.share({4, 5}).detach();
         return t.forward<nn::BCEWithLogitsLoss>(
             nn::BCEWithLogitsLossOptions().weight(t.positive({4, 5})).pos_weight(t.positive({5})),
             input, target);
       }},
      {"NLLLoss", "", to_class<nn::NLLLoss>(nn::NLLLossOptions())},
      {"NLLLoss", "of each", to_class<nn::NLLLoss>(nn::NLLLossOptions().reduction(torch::kNone))},
      {"NLLLoss", "of images",
       [](Trial& t) {
         const Tensor scores = t.x({2, 3, 4, 5}).contiguous();  // LibTorch wants them so
         return t.forward<nn::NLLLoss>(nn::NLLLossOptions(), scores, t.below(3, {2, 4, 5}));
       }},
      {"NLLLoss", "of volumes", to_class<nn::NLLLoss>(nn::NLLLossOptions(), {2, 3, 2, 4, 5})},
      {"NLLLoss", "weighted",
       [](Trial& t) {
         const Tensor scores = t.x({4, 5});
         const Tensor classes = t.below(5, {4});
         return t.forward<nn::NLLLoss>(nn::NLLLossOptions().weight(t.positive({5})).ignore_index(2),
                                       scores, classes);
       }},
      {"CrossEntropyLoss", "", to_class<nn::CrossEntropyLoss>(Cross())},
      {"CrossEntropyLoss", "of each",
       to_class<nn::CrossEntropyLoss>(Cross().reduction(torch::kNone))},
      {"CrossEntropyLoss", "summed",
       to_class<nn::CrossEntropyLoss>(Cross().reduction(torch::kSum))},
      {"CrossEntropyLoss", "smoothed",
       to_class<nn::CrossEntropyLoss>(Cross().label_smoothing(0.1))},
      {"CrossEntropyLoss", "of images", to_class<nn::CrossEntropyLoss>(Cross(), {2, 3, 4, 5})},
      {"CrossEntropyLoss", "of many classes", to_class<nn::CrossEntropyLoss>(Cross(), {17, 1031})},
      {"CrossEntropyLoss", "of nothing", to_class<nn::CrossEntropyLoss>(Cross(), {0, 5})},
      {"CrossEntropyLoss", "to shares", to_shares<nn::CrossEntropyLoss>(Cross())},
      {"CrossEntropyLoss", "weighted and ignoring a class",
       weighted_cross_entropy(Cross().ignore_index(2))},
      {"CrossEntropyLoss", "weighted and smoothed",
       weighted_cross_entropy(Cross().label_smoothing(0.1))},
      {"CrossEntropyLoss", "weighted, smoothed and ignoring a class",
       weighted_cross_entropy(Cross().ignore_index(2).label_smoothing(0.1))},
      {"HingeEmbeddingLoss", "", to_signs<nn::HingeEmbeddingLoss>(nn::HingeEmbeddingLossOptions())},
      {"SoftMarginLoss", "", to_signs<nn::SoftMarginLoss>(nn::SoftMarginLossOptions())},
      {"SoftMarginLoss", "of each",
       to_signs<nn::SoftMarginLoss>(nn::SoftMarginLossOptions(torch::kNone))},
      {"MultiMarginLoss", "", to_class<nn::MultiMarginLoss>(nn::MultiMarginLossOptions())},
      {"MultiMarginLoss", "squared and weighted",
       [](Trial& t) {
         const Tensor scores = t.x({4, 5});
         const Tensor classes = t.below(5, {4});
         return t.forward<nn::MultiMarginLoss>(
             nn::MultiMarginLossOptions().p(2).weight(t.positive({5})).reduction(torch::kNone),
             scores, classes);
       }},
      {"MultiLabelMarginLoss", "",
       [](Trial& t) {
         const Tensor scores = t.x({2, 4});
         return t.forward<nn::MultiLabelMarginLoss>(
             nn::MultiLabelMarginLossOptions(), scores,
             t.put(torch::tensor({{3, 0, -1, 1}, {1, -1, 0, 0}})));
       }},
      {"MultiLabelSoftMarginLoss", "",
       to_shares<nn::MultiLabelSoftMarginLoss>(nn::MultiLabelSoftMarginLossOptions())},
      {"MultiLabelSoftMarginLoss", "weighted",
       [](Trial& t) {
         const Tensor scores = t.x({4, 5});
         const Tensor target = t.share({4, 5}).detach();
         return t.forward<nn::MultiLabelSoftMarginLoss>(
             nn::MultiLabelSoftMarginLossOptions().weight(t.positive({5})), scores, target);
       }},
      {"CTCLoss", "", connectionist(nn::CTCLossOptions(), false)},
      {"CTCLoss", "without infinity",
       connectionist(nn::CTCLossOptions().zero_infinity(true).reduction(torch::kSum), false)},
      {"CTCLoss", "with lengths on the card", connectionist(nn::CTCLossOptions(), true)},
      {"AdaptiveLogSoftmaxWithLoss", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({6, 16});
         return t.forward<nn::AdaptiveLogSoftmaxWithLoss>(
             nn::AdaptiveLogSoftmaxWithLossOptions(16, 20, {5, 10}), x, t.below(20, {6}));
       }},
      {"AdaptiveLogSoftmaxWithLoss", "of all classes",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::AdaptiveLogSoftmaxWithLoss>(
             nn::AdaptiveLogSoftmaxWithLossOptions(16, 20, {5, 10}));
         return module->log_prob(t.x({6, 16}));
       }},
  };
}

}  // namespace

Cases loss_cases() {
  Cases all = losses_by_distance();
  for (Case& one : losses_of_classes()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage
