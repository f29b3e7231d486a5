#include "headroom/train/split.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/modules.h"

namespace headroom::train {
namespace {

using torch::nn::AnyModule;

std::int64_t bytes_of(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const at::Tensor& one : module.parameters())
    bytes += static_cast<std::int64_t>(one.nbytes());
  return bytes;
}

// How many pieces of at most this sum the numbers need, each as long as possible.
std::vector<std::size_t> pieces_of_at_most(const std::vector<std::int64_t>& numbers,
                                           std::int64_t most) {
  std::vector<std::size_t> counts;
  std::int64_t sum = most + 1;
  for (const std::int64_t one : numbers) {
    if (sum + one > most) {
      counts.push_back(0);
      sum = 0;
    }
    ++counts.back();
    sum += one;
  }
  return counts;
}

}  // namespace

std::vector<std::size_t> even_pieces(const std::vector<std::int64_t>& numbers, std::size_t pieces) {
  if (pieces < 1 || pieces > numbers.size())
    throw UsageError(expectation("even_pieces",
                                 "1 to " + std::to_string(numbers.size()) + " pieces",
                                 std::to_string(pieces)));
  std::int64_t low = *std::max_element(numbers.begin(), numbers.end()),
               high = std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (pieces_of_at_most(numbers, middle).size() <= pieces)
      high = middle;
    else
      low = middle + 1;
  }
  std::vector<std::size_t> counts = pieces_of_at_most(numbers, low);
  while (counts.size() < pieces) {  // more pieces make none larger
    const auto longest = std::max_element(counts.begin(), counts.end());
    const std::size_t half = *longest / 2;
    *longest -= half;
    counts.insert(longest + 1, half);
  }
  return counts;
}

struct Split::Stage : torch::nn::Module {
  void add(const std::string& name, AnyModule module) {
    register_module(name, module.ptr());
    modules.push_back(std::move(module));
  }
  at::Tensor forward(at::Tensor x) {
    for (AnyModule& one : modules) x = one.forward(x);
    return x;
  }
  std::vector<AnyModule> modules;
};

Split::Split(const torch::nn::Sequential& net, const SplitOptions& options)
    : stages_(0), pipeline_(options.pipeline) {
  const auto devices = static_cast<int>(options.devices.size());
  if (options.replicas < 1 || devices == 0 || devices % options.replicas != 0)
    throw UsageError(expectation(
        "Split", "as many devices for each replica",
        std::to_string(devices) + " for " + std::to_string(options.replicas) + " replicas"));
  stages_ = devices / options.replicas;
  std::vector<std::size_t> counts = options.modules;
  if (counts.empty()) {
    std::vector<std::int64_t> bytes;
    for (const auto& module : net->children()) bytes.push_back(bytes_of(*module));
    counts = even_pieces(bytes, static_cast<std::size_t>(stages_));
  }
  if (counts.size() != static_cast<std::size_t>(stages_) ||
      std::count(counts.begin(), counts.end(), 0U) != 0 ||
      std::accumulate(counts.begin(), counts.end(), std::size_t{0}) != net->size())
    throw UsageError(expectation("Split",
                                 "a number of modules for each of " + std::to_string(stages_) +
                                     " stages, " + std::to_string(net->size()) + " together",
                                 "others"));
  // The clones come first: the modules are still where one clone() finds them all.
  std::vector<torch::nn::Sequential> replicas{net};
  for (int replica = 1; replica < options.replicas; ++replica)
    replicas.emplace_back(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  std::set<const c10::TensorImpl*> elsewhere;
  for (int rank = 0; rank < devices; ++rank) {
    const torch::nn::Sequential& of = replicas[static_cast<std::size_t>(rank / stages_)];
    const auto stage = std::make_shared<Stage>();
    const auto first = counts.begin(), here = first + rank % stages_;
    const std::size_t from = std::accumulate(first, here, std::size_t{0});
    const auto names = of->named_children();
    for (std::size_t i = from; i < from + *here; ++i)
      stage->add(names[i].key(), *(of->begin() + static_cast<std::ptrdiff_t>(i)));
    for (const at::Tensor& one : stage->parameters())
      if (!elsewhere.insert(one.unsafeGetTensorImpl()).second)
        throw UsageError(expectation("Split", "stages with weights of their own",
                                     "a weight that two stages share", "a Team with a Tie"));
    libtorch::move(*stage, options.devices[static_cast<std::size_t>(rank)]);
    ranks_.push_back({stage, nullptr});
  }
}

Split::~Split() = default;

Team Split::team(const MakeOptimizer& make_optimizer, const Loss& loss) {
  Team team{.stages = stages_, .pipeline = pipeline_};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    Ranked& one = ranks_[rank];
    one.optimizer = make_optimizer(one.stage->parameters());
    const auto number = static_cast<int>(rank) % stages_;
    const bool is_first = number == 0, is_last = number + 1 == stages_;
    team.ranks.push_back({*one.stage,
                          *one.optimizer,
                          {.part = [stage = one.stage, loss, is_first, is_last](
                                       const Tensors& rows, const Tensors& given) {
                            const at::Tensor output =
                                stage->forward(is_first ? rows.at(0) : given.at(0));
                            return Tensors{is_last ? loss(output, rows) : output};
                          }}});
  }
  return team;
}

torch::nn::Module& Split::stage(std::size_t rank) {
  return *ranks_.at(rank).stage;
}
optim::Optimizer& Split::optimizer(std::size_t rank) {
  return *ranks_.at(rank).optimizer;
}

}  // namespace headroom::train
