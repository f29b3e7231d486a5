#include "headroom/train/evaluation.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/settle.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/history.h"
#include "headroom/parallel/border.h"
#include "headroom/trace/recorder.h"
#include "headroom/train/detail/transactions.h"

namespace headroom::train {
namespace {

c10::Device device_of(torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? c10::Device(at::kCPU) : parameters.front().device();
}

// In evaluation mode until the end of the scope; then each submodule as it was.
class EvaluationMode {
 public:
  explicit EvaluationMode(const std::vector<torch::nn::Module*>& modules) {
    for (torch::nn::Module* const module : modules) {
      for (const auto& one : module->modules(/*include_self=*/false))
        before_.emplace_back(one.get());
      before_.emplace_back(module);
    }
    for (auto& [one, was_training] : before_) was_training = one->is_training();
    for (torch::nn::Module* const module : modules) module->eval();
  }
  // A module's train() sets its children, too: they come before it in the list.
  ~EvaluationMode() {
    for (auto at = before_.rbegin(); at != before_.rend(); ++at)
      if (at->first->is_training() != at->second) at->first->train(at->second);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  struct Place {
    explicit Place(torch::nn::Module* module) : first(module) {}
    torch::nn::Module* first;
    bool second = false;
  };
  std::vector<Place> before_;
};

void add_predictions(const at::Tensor& logits, std::vector<Prediction>& predictions) {
  const auto [probabilities, labels] = logits.cpu().to(at::kDouble).softmax(-1).max(-1);
  for (std::int64_t row = 0; row < labels.size(0); ++row)
    predictions.push_back({labels[row].item<std::int64_t>(), probabilities[row].item<double>()});
}

}  // namespace

struct Evaluation::Rank {
  Rank(torch::nn::Module& of, Objective its, parallel::Ranks its_ranks = {})
      : module(of), objective(std::move(its)), ranks(std::move(its_ranks)) {
    const int stage = ranks.stages.rank();
    if (stage > 0) before.emplace(ranks.stages, stage - 1);
    if (stage + 1 < ranks.stages.size()) after.emplace(ranks.stages, stage + 1);
    if (!objective.score && objective.loss)
      objective.score = [loss = objective.loss](const Tensors& rows) {
        return Score{loss(rows), {}, {}};
      };
    if (!objective.part_score)
      objective.part_score = [part = objective.part](const Tensors& rows, const Tensors& given) {
        return Score{part(rows, given).at(0), {}, {}};
      };
  }

  torch::nn::Module& module;
  Objective objective;
  parallel::Ranks ranks;
  std::optional<parallel::Border> before, after;  // to the stages beside this one
};

Evaluation::Evaluation(torch::nn::Module& module, Objective objective, EvaluationOptions options)
    : options_(std::move(options)) {
  ranks_.push_back(std::make_unique<Rank>(module, std::move(objective)));
}

Evaluation::Evaluation(const Team& team, EvaluationOptions options) : options_(std::move(options)) {
  const auto groups = parallel::in_process(detail::layout_of(team));
  std::vector<c10::Device> devices;
  for (std::size_t rank = 0; rank < team.ranks.size(); ++rank) {
    const train::Rank& one = team.ranks[rank];
    ranks_.push_back(std::make_unique<Rank>(one.module, one.objective, groups[rank]));
    devices.push_back(device_of(one.module));
  }
  if (devices.size() > 1) threads_ = std::make_unique<parallel::RankThreads>(std::move(devices));
}

Evaluation::~Evaluation() = default;

void Evaluation::Sums::add(const Sums& other) {
  loss += other.loss;
  terms += other.terms;
  right += other.right;
  rows += other.rows;
  counts_right = counts_right && other.counts_right;
  predictions.insert(predictions.end(), other.predictions.begin(), other.predictions.end());
}

Evaluated Evaluation::run(const Batches& batches, std::int64_t step) {
  std::vector<torch::nn::Module*> modules;
  for (const auto& rank : ranks_) modules.push_back(&rank->module);
  const EvaluationMode mode(modules);
  const at::NoGradGuard no_grad;
  const std::string begin = batches.position ? batches.position() : "";
  Sums all;
  for (std::int64_t i = 0; i < batches.per_epoch; ++i) {
    const std::int64_t before = options_.micro_batch;
    const Sums one = measured(batches.next(), step);
    if (i > 0 && options_.micro_batch != before && batches.position && batches.go_to) {
      batches.go_to(begin);
      all = {};
      i = -1;
      continue;
    }
    all.add(one);
  }
  Evaluated result{.loss = all.loss / std::max(all.terms, 1.0), .accuracy = {}, .rows = all.rows};
  result.predictions = std::move(all.predictions);
  if (all.counts_right && all.rows > 0) result.accuracy = all.right / static_cast<double>(all.rows);
  return result;
}

void Evaluation::set_micro_batch(std::int64_t rows) {
  const bool has_failed = most_ != 0 && (rows == 0 || rows > most_);
  options_.micro_batch = has_failed ? most_ : rows;
}

void Evaluation::tell(Event event, std::int64_t from, std::int64_t to) const {
  if (!options_.on_event) return;
  event.from.micro_batch = from;
  event.to.micro_batch = to;
  options_.on_event(event);
}

// The same parts once more after a failure, then half of them, down to single rows.
Evaluation::Sums Evaluation::measured(const Tensors& batch, std::int64_t step) {
  const std::int64_t rows = detail::rows_in(batch);
  for (bool is_repeated = false;;) {
    const libtorch::RandomState random(libtorch::devices_in_use());
    std::exception_ptr failed;
    try {
      return attempt(batch);
    } catch (...) {
      failed = std::current_exception();
    }
    const oom::Judgement judgement = libtorch::judge(failed);
    if (!oom::is_out_of_memory(judgement)) std::rethrow_exception(failed);
    random.restore();
    libtorch::settle(libtorch::devices_in_use());
    empty_caches();
    const parallel::Layout layout{.replicas = ranks_.front()->ranks.replicas.size()};
    const std::int64_t all = layout.rows_of_largest(rows);
    const std::int64_t now = options_.micro_batch == 0 ? all : std::min(options_.micro_batch, all);
    tell({.kind = Event::Kind::oom,
          .step = step,
          .asked = judgement.asked,
          .free = judgement.free,
          .cached = judgement.cached,
          .device = threads_ ? device_of(ranks_[failed_]->module).str() : ""},
         now, now);
    if (std::exchange(is_repeated, !is_repeated) == false) {
      tell({.kind = Event::Kind::retry, .step = step}, now, now);
      continue;
    }
    if (now == 1) std::rethrow_exception(failed);
    most_ = options_.micro_batch = now / 2;
    tell({.kind = Event::Kind::shrink, .step = step}, now, options_.micro_batch);
  }
}

void Evaluation::empty_caches() const {
  for (const auto& rank : ranks_)
    if (const c10::Device device = device_of(rank->module); !device.is_cpu())
      memory::memory_of(device).empty_cache();
}

Evaluation::Sums Evaluation::attempt(const Tensors& batch) {
  std::vector<Sums> of_ranks(ranks_.size());
  std::vector<std::exception_ptr> failures(ranks_.size());
  const auto measure = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    FirstFailure failure;
    of_ranks[i] = of_rank(*ranks_[i], batch, failure);
    failures[i] = failure.get();
  };
  threads_ ? threads_->run(measure) : measure(0);
  failed_ = detail::heaviest(failures);
  if (failures[failed_]) std::rethrow_exception(failures[failed_]);
  Sums all{.rows = detail::rows_in(batch)};
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (!ranks_[i]->after) all.add(of_ranks[i]);
  return all;
}

// A stage that has failed goes on to take and to give, for the others.
Evaluation::Sums Evaluation::of_rank(Rank& rank, const Tensors& batch,
                                     FirstFailure& failure) const {
  const c10::Device device = device_of(rank.module);
  trace::Recorder* const recorder = device.is_cpu() ? nullptr : memory::recorder_of(device);
  const auto phase = recorder == nullptr
                         ? nullptr
                         : std::make_unique<trace::PhaseScope>(*recorder, trace::Phase::evaluation);
  const optim::Rows mine = detail::rows_of_replica(detail::rows_in(batch), rank.ranks.replicas);
  Sums sums;
  if (mine.count == 0) return sums;
  std::optional<libtorch::AutocastScope> autocast;
  if (options_.autocast) autocast.emplace(device.type(), *options_.autocast);
  for (const optim::Rows& part :
       detail::parts_of(mine.count, Plan{.micro_batch = options_.micro_batch})) {
    Tensors given, outputs;
    if (rank.before && failure)
      failure.always([&] { rank.before->skip(); });
    else if (rank.before)
      failure.always([&] { given = rank.before->take(device); });
    failure.then([&] {
      of_part(rank, detail::some_rows(batch, {mine.first + part.first, part.count}), given, outputs,
              sums);
    });
    if (rank.after && failure)
      failure.always([&] { rank.after->give_nothing(); });
    else if (rank.after)
      failure.always([&] { rank.after->give(outputs); });
  }
  if (rank.after) failure.always([&] { rank.after->end(); });
  return sums;
}

void Evaluation::of_part(Rank& rank, const Tensors& rows, const Tensors& given, Tensors& outputs,
                         Sums& sums) const {
  const Objective& objective = rank.objective;
  const Tensors here = detail::put_on(detail::used(objective, rows), device_of(rank.module));
  if (rank.after) {
    outputs = objective.part(here, given);
    return;
  }
  const double terms =
      static_cast<double>(objective.terms ? objective.terms(rows) : detail::rows_in(rows));
  const Score score = objective.part ? objective.part_score(here, given) : objective.score(here);
  sums.loss += score.loss.item<double>() * terms;
  sums.terms += terms;
  sums.counts_right = sums.counts_right && score.right.defined();
  if (score.right.defined()) sums.right += score.right.item<double>();
  if (options_.predicts && score.logits.defined()) add_predictions(score.logits, sums.predictions);
}

bool is_better(const Evaluated& one, const Evaluated& other) {
  if (one.accuracy && other.accuracy && *one.accuracy != *other.accuracy)
    return *one.accuracy > *other.accuracy;
  if (std::isnan(other.loss)) return !std::isnan(one.loss);
  return one.loss < other.loss;
}

Json to_json(const Evaluated& result) {
  return {{"loss", result.loss}, {"accuracy", or_null(result.accuracy)}, {"rows", result.rows}};
}

Evaluated evaluated_from(const Json& document) {
  const Json& loss = document.at("loss");  // JSON has no number for NaN
  Evaluated result{.loss = loss.is_null() ? std::nan("") : loss.get<double>(),
                   .accuracy = {},
                   .rows = document.at("rows").get<std::int64_t>()};
  if (const Json& accuracy = document.at("accuracy"); !accuracy.is_null())
    result.accuracy = accuracy.get<double>();
  return result;
}

}  // namespace headroom::train
