#include "headroom/forecast/detail/optimizer_step.h"

#include <algorithm>

namespace headroom::forecast::detail {
namespace {

constexpr std::int64_t kFloat = 4;

Sizes& operator+=(Sizes& a, const Sizes& b) {
  a.bytes += b.bytes;
  a.rounded += b.rounded;
  return a;
}

Sizes one(std::int64_t bytes) {
  return {bytes, rounded(bytes)};
}
Sizes times(Sizes sizes, std::int64_t n) {
  return {sizes.bytes * n, sizes.rounded * n};
}

model::OptimizerForm form_of(const model::Settings& settings) {
  if (settings.optimizer == model::Optimizer::adafactor_hf) return model::OptimizerForm::loop;
  if (settings.optimizer == model::Optimizer::adafactor &&
      settings.form == model::OptimizerForm::fused)
    return model::OptimizerForm::loop;
  return settings.form;
}

// Bytes of the row and column means of squares, with `each` bytes per number.
std::int64_t factors_of(const Parameter& parameter, std::int64_t each) {
  const std::int64_t last = parameter.kernel > 0 ? parameter.kernel : parameter.columns;
  const std::int64_t before = parameter.kernel > 0 ? parameter.kernel : parameter.rows;
  return parameter.count() / last * each + parameter.count() / before * each;
}

Sizes adam_states(const model::Settings& settings, const Parameter& parameter) {
  Sizes all = times(one(parameter.count() * size_of(parameter.type)), 2);
  if (form_of(settings) == model::OptimizerForm::fused) all += one(kFloat);  // the step count
  return all;
}

// Two states of codes, each with a float scale a block; small ones: float. And the count of steps.
Sizes compact_states(const Parameter& parameter, std::int64_t bits, std::int64_t block) {
  constexpr std::int64_t kSmall = 4096;
  Sizes all = one(parameter.count() * kFloat);
  if (parameter.count() >= kSmall) {
    all = one((parameter.count() * bits + 7) / 8);
    all += one((parameter.count() + block - 1) / block * kFloat);
  }
  all = times(all, 2);
  all += one(kFloat);
  return all;
}

Sizes adafactor_states(const model::Settings& settings, const Parameter& parameter) {
  const bool hugging_face = settings.optimizer == model::Optimizer::adafactor_hf;
  const std::int64_t each = hugging_face ? kFloat : size_of(parameter.type);
  Sizes all = one(parameter.is_matrix() ? factors_of(parameter, each) : parameter.count() * each);
  if (hugging_face) all += one(kFloat);  // its root mean square, for the next step
  return all;
}

// Temporaries of a parameter's turn in a loop after that of `before`: Python's variables hold the
// tensors of the previous turn until they are bound again.
Sizes adam_turn(const Parameter& parameter, const Parameter& before) {
  Sizes all = times(one(parameter.bytes()), 2);  // the square root, and its quotient
  all += one(before.bytes());
  return all;
}

Sizes adafactor_turn(const Parameter& parameter, const Parameter& before) {
  Sizes all = one(parameter.bytes());
  all += one(before.bytes());
  if (!parameter.is_matrix()) all += one(parameter.bytes());  // the squared gradient
  return all;
}

// Float copies of gradient and parameter if those have lower precision, which live until they are
// bound again; the previous update; the squared gradient, and the same plus epsilon.
Sizes adafactor_hf_turn(const Parameter& parameter, const Parameter& before) {
  const bool copies = parameter.type != Type::float32;
  const Sizes now = one(parameter.count() * kFloat), then = one(before.count() * kFloat);
  Sizes all = times(now, copies ? 4 : 2);
  all += then;
  return all;
}

using Turn = Sizes (*)(const Parameter&, const Parameter&);

Sizes largest_turn(const std::deque<Parameter>& parameters, Turn turn) {
  Sizes most;
  const Parameter nothing;
  const Parameter* before = nullptr;
  for (const Parameter& parameter : parameters) {
    if (!parameter.trained) continue;
    const Sizes sizes = turn(parameter, before != nullptr ? *before : nothing);
    if (sizes.rounded > most.rounded) most = sizes;
    before = &parameter;
  }
  return most;
}

// All at once: a list of tensors as large as the parameters.
Sizes of_all(const std::deque<Parameter>& parameters, bool matrices, bool vectors) {
  Sizes all;
  for (const Parameter& parameter : parameters)
    if (parameter.trained && (parameter.is_matrix() ? matrices : vectors))
      all += times(one(parameter.bytes()), parameter.times);
  return all;
}

// The updates of matrices live until those of vectors exist.
Sizes adafactor_lists(const std::deque<Parameter>& parameters) {
  Sizes all = of_all(parameters, true, false);
  all += times(of_all(parameters, false, true), 2);
  return all;
}

}  // namespace

Sizes state_of(const model::Settings& settings, const Parameter& parameter) {
  if (!parameter.trained) return {};
  switch (settings.optimizer) {
    case model::Optimizer::adamw:
    case model::Optimizer::adam:
      return adam_states(settings, parameter);
    case model::Optimizer::sgd_momentum:
      return one(parameter.bytes());
    case model::Optimizer::adafactor:
    case model::Optimizer::adafactor_hf:
      return adafactor_states(settings, parameter);
    case model::Optimizer::adamw8bit:
      return compact_states(parameter, 8, 256);
    case model::Optimizer::adamw4bit:
      return compact_states(parameter, 4, 128);
    case model::Optimizer::sgd:
    case model::Optimizer::none:
      return {};
  }
  return {};
}

Sizes temporaries_of_step(const model::Settings& settings,
                          const std::deque<Parameter>& parameters) {
  const model::OptimizerForm form = form_of(settings);
  switch (settings.optimizer) {
    case model::Optimizer::adamw:
    case model::Optimizer::adam:
      if (form == model::OptimizerForm::loop) return largest_turn(parameters, adam_turn);
      return form == model::OptimizerForm::foreach ? of_all(parameters, true, true) : Sizes();
    case model::Optimizer::adafactor:
      return form == model::OptimizerForm::loop ? largest_turn(parameters, adafactor_turn)
                                                : adafactor_lists(parameters);
    case model::Optimizer::adafactor_hf:
      return largest_turn(parameters, adafactor_hf_turn);
    case model::Optimizer::sgd:
    case model::Optimizer::sgd_momentum:
    case model::Optimizer::adamw8bit:
    case model::Optimizer::adamw4bit:
    case model::Optimizer::none:
      return {};
  }
  return {};
}

std::int64_t temporaries_of_one(const model::Settings& settings, const Parameter& parameter) {
  std::deque<Parameter> alone;
  Parameter& copy = alone.emplace_back();
  copy.rows = parameter.rows;
  copy.columns = parameter.columns;
  copy.type = parameter.type;
  copy.kernel = parameter.kernel;
  return temporaries_of_step(settings, alone).rounded;
}

}  // namespace headroom::forecast::detail
