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
#include "headroom/trace/recorder.h"
#include "headroom/train/detail/transaction.h"

namespace headroom::train {
namespace {

c10::Device device_of(torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? c10::Device(at::kCPU) : parameters.front().device();
}

// In evaluation mode until the end of the scope; then each submodule as it was.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    for (const auto& one : module.modules(/*include_self=*/false)) before_.emplace_back(one.get());
    before_.emplace_back(&module);
    for (auto& [one, was_training] : before_) was_training = one->is_training();
    module.eval();
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

Evaluation::Evaluation(torch::nn::Module& module, Objective objective, EvaluationOptions options)
    : module_(module), objective_(std::move(objective)), options_(std::move(options)) {
  if (!objective_.score)
    objective_.score = [loss = objective_.loss](const Tensors& rows) {
      return Score{loss(rows), {}, {}};
    };
}

Evaluated Evaluation::run(const Batches& batches, std::int64_t step) {
  const EvaluationMode mode(module_);
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
    all.loss += one.loss;
    all.terms += one.terms;
    all.right += one.right;
    all.rows += one.rows;
    all.counts_right = all.counts_right && one.counts_right;
    all.predictions.insert(all.predictions.end(), one.predictions.begin(), one.predictions.end());
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
    const c10::Device device = device_of(module_);
    libtorch::settle(libtorch::devices_in_use());
    if (!device.is_cpu()) memory::memory_of(device).empty_cache();
    const std::int64_t now =
        options_.micro_batch == 0 ? rows : std::min(options_.micro_batch, rows);
    tell({.kind = Event::Kind::oom,
          .step = step,
          .asked = judgement.asked,
          .free = judgement.free,
          .cached = judgement.cached},
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

Evaluation::Sums Evaluation::attempt(const Tensors& batch) {
  const c10::Device device = device_of(module_);
  trace::Recorder* const recorder = device.is_cpu() ? nullptr : memory::recorder_of(device);
  const auto phase = recorder == nullptr
                         ? nullptr
                         : std::make_unique<trace::PhaseScope>(*recorder, trace::Phase::evaluation);
  std::optional<libtorch::AutocastScope> autocast;
  if (options_.autocast) autocast.emplace(device.type(), *options_.autocast);
  Sums sums{.rows = detail::rows_in(batch)};
  for (const optim::Rows& part :
       detail::parts_of(sums.rows, Plan{.micro_batch = options_.micro_batch})) {
    const Tensors rows = detail::some_rows(batch, part);
    const double terms =
        static_cast<double>(objective_.terms ? objective_.terms(rows) : part.count);
    const Score score = objective_.score(detail::put_on(rows, device));
    sums.loss += score.loss.item<double>() * terms;
    sums.terms += terms;
    sums.counts_right = sums.counts_right && score.right.defined();
    if (score.right.defined()) sums.right += score.right.item<double>();
    if (options_.predicts && score.logits.defined())
      add_predictions(score.logits, sums.predictions);
  }
  return sums;
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
