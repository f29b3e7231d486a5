#include "headroom/forecast/detail/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/model/tasks.h"

namespace headroom::forecast::detail {

// ---- Parameters ----

void Network::begin_module(std::string name, bool head) {
  backbone_ = !head;
  end_module();
  modules.push_back({.name = std::move(name)});
  tape.set_module(static_cast<int>(modules.size()) - 1);
}

Parameter& Network::weight(std::int64_t rows, std::int64_t columns) {
  const bool new_head = situation.task == model::Task::sequence_classification ||
                        situation.task == model::Task::image_classification;
  bool trained = situation.trains;
  if (settings.lora_rank > 0)
    trained = trained && !backbone_ && (settings.freeze_backbone || new_head);
  else if (settings.freeze_backbone)
    trained = trained && !backbone_;
  return tape.parameter(rows, columns, situation.type, trained);
}

Parameter& Network::token_table(std::int64_t rows, std::int64_t columns) {
  Parameter& table = weight(rows, columns);
  const bool has_head = situation.task == model::Task::causal_lm ||
                        situation.task == model::Task::masked_lm ||
                        situation.task == model::Task::seq2seq_lm;
  if (settings.freeze_backbone && has_head && config.flag("tie_word_embeddings"))
    table.trained = situation.trains;
  return table;
}

void Network::end_module() {
  if (!modules.empty()) modules.back().activations += tape.live().activations - activations_before_;
  activations_before_ = tape.live().activations;
}

// ---- Norms ----

Value Network::layer_norm(const Value& x, std::int64_t width, bool affine) {
  Parameter* const scale = affine ? &vector(width) : nullptr;
  Parameter* const shift = affine ? &vector(width) : nullptr;
  const Value input = situation.low ? cast(tape, x, Type::float32) : x;
  return detail::layer_norm(tape, input, width, scale, shift);
}

namespace {

// 1 / root mean square, one number per row.
Value scale_of_rows(Tape& tape, const Value& states, std::int64_t width) {
  Value squares = power(tape, states);
  Value scale = mean_of_rows(tape, squares, states.count / width);
  squares.reset();
  scale = plus_number(tape, scale);
  return unary(tape, scale, Keeps::result, 2);
}

}  // namespace

Value Network::rms_norm(const Value& x, std::int64_t width) {
  Parameter& weight = vector(width);
  Value states = cast(tape, x, Type::float32);
  Value scale = scale_of_rows(tape, states, width);
  states = times(tape, states, scale);
  scale.reset();
  states = cast(tape, states, x.type);
  return times(tape, tape.use(weight), states);
}

Value Network::offset_rms_norm(const Value& x, std::int64_t width) {
  Parameter& weight = vector(width);
  Value states = cast(tape, x, Type::float32);
  {
    const Value scale = scale_of_rows(tape, states, width);
    states = times(tape, states, scale);
  }
  Value scale = cast(tape, tape.use(weight), Type::float32);
  scale = plus_number(tape, scale);
  states = times(tape, states, scale);
  scale.reset();
  return cast(tape, states, x.type);
}

Value Network::t5_norm(const Value& x, std::int64_t width) {
  Parameter& weight = vector(width);
  Value wide = cast(tape, x, Type::float32);
  Value scale = scale_of_rows(tape, wide, width);
  wide.reset();
  Value states = times(tape, x, scale);
  scale.reset();
  if (weight.type != Type::float32) states = cast(tape, states, weight.type);
  return times(tape, tape.use(weight), states);
}

Value Network::dropout(const Value& x, double share) {
  return situation.trains ? detail::dropout(tape, x, share) : x;
}

Value Network::softmax_in_float(const Value& x) {
  const Value wide = cast(tape, x, Type::float32);
  return softmax(tape, wide);
}

// ---- Layers ----

Value Network::layers(std::int64_t count, const std::function<Value(const Value&)>& layer,
                      Value states, std::string_view name) {
  return layers(
      std::vector<int>(static_cast<std::size_t>(count), 0),
      [layer](int, const Value& x) { return layer(x); }, std::move(states), name);
}

namespace {

// The number of layers after which the kinds repeat in the same order; 0: they do not.
std::size_t period_of(const std::vector<int>& kinds) {
  for (std::size_t period = 1; period <= 12 && 2 * period <= kinds.size(); ++period) {
    bool same = true;
    for (std::size_t i = period; same && i < kinds.size(); ++i)
      same = kinds[i] == kinds[i - period];
    if (same) return period;
  }
  return 0;
}

}  // namespace

Value Network::layers(const std::vector<int>& kinds, const Layer& layer, Value states,
                      std::string_view name) {
  begin_module(std::string(name));
  modules.back().layers = static_cast<std::int64_t>(kinds.size());
  return run_layers(kinds, layer, std::move(states), 0);
}

// Doubles the kinds, to mark checkpointed layers. Then counts repetitions once: whole periods, or
// else runs of one kind.
Value Network::run_layers(const std::vector<int>& kinds, const Layer& layer, Value states,
                          std::int64_t first) {
  const std::int64_t every = situation.trains ? settings.checkpoint_every : 0;
  modules.back().kinds.insert(modules.back().kinds.end(), kinds.begin(), kinds.end());
  std::vector<int> all;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    all.push_back(2 * kinds[i] +
                  (every > 0 && (first + static_cast<std::int64_t>(i)) % every == 0 ? 1 : 0));
  const bool reentrant = settings.checkpointing_kind == model::CheckpointingKind::reentrant;
  const auto one = [&, layer](int kind, const Value& x) {
    if (kind % 2 == 0) return layer(kind / 2, x);
    const auto part = [this, layer, kind](const Value& y) {
      const bool before = std::exchange(backbone_, true);  // a rerun comes after the heads
      Value result = layer(kind / 2, y);
      backbone_ = before;
      return result;
    };
    return tape.checkpoint(part, x, reentrant);
  };
  const std::size_t period = period_of(all);
  std::size_t begin = 0;
  while (begin < all.size()) {
    std::size_t length = period, times = 1;
    if (period > 0) {
      times = std::max<std::size_t>((all.size() - begin) / period, 1);
      length = std::min(period, all.size() - begin);
    } else {
      length = 1;
      while (begin + times < all.size() && all[begin + times] == all[begin]) ++times;
    }
    states = tape.repeat(
        static_cast<std::int64_t>(times),
        [&](Value x) {
          for (std::size_t i = 0; i < length; ++i) x = one(all[begin + i], x);
          return x;
        },
        std::move(states));
    begin += length * times;
  }
  return states;
}

// ---- Losses ----

Value Network::logits(const TokenHead& head, const Value& states) {
  const Value inner = head.inner ? head.inner(states) : states;
  const Value product = tied_linear(inner, head.weight(), head.bias);
  return head.after ? head.after(product) : product;
}

Value Network::token_loss(const TokenHead& head, const Value& states, std::int64_t width,
                          std::int64_t vocabulary, bool in_float) {
  if (situation.trains && settings.loss == model::LossForm::fused)
    return fused_loss(head, states, width, vocabulary);
  if (situation.trains && settings.loss == model::LossForm::chunked)
    return chunked_loss(head, states, width, in_float);
  Value all = logits(head, states);
  if (situation.holds_outputs || !situation.trains) held.push_back(all);
  if (!situation.trains) return {};
  if (in_float) all = cast(tape, all, Type::float32);
  return cross_entropy(tape, all);
}

// The head of each chunk runs again in the backward pass.
Value Network::chunked_loss(const TokenHead& head, const Value& states, std::int64_t width,
                            bool in_float) {
  const std::int64_t tokens = states.count / width;
  const std::int64_t chunk = std::min(tokens, settings.loss_chunk);
  const auto part = [this, head, in_float](const Value& x) {
    Value all = logits(head, x);
    if (in_float) all = cast(tape, all, Type::float32);
    return cross_entropy(tape, all);
  };
  Value sum;
  const std::size_t parameters = tape.next_parameter();
  const auto add = [&](const Value&) {
    tape.rewind(parameters);
    Value loss = tape.checkpoint(part, slice(tape, states, chunk * width), false);
    loss = cast(tape, loss, Type::float32);
    sum = sum ? plus(tape, sum, loss) : loss;
    return sum;
  };
  return tape.repeat((tokens + chunk - 1) / chunk, add, Value(), true);
}

namespace {

// Those of nn/fused_loss.cpp: rows of a block, and those in the memory of the weight's gradient.
std::int64_t rows_of_block(std::int64_t rows, bool is_linear) {
  const std::int64_t blocks = is_linear ? 6 : 16;
  const std::int64_t part = (rows + blocks - 1) / blocks;
  return std::min({rows, std::int64_t{1024}, (part + 7) / 8 * 8});
}

std::int64_t rows_of_first(std::int64_t rows, std::int64_t block, std::int64_t width) {
  if (block >= width) return 0;
  return std::min(rows, static_cast<std::int64_t>(std::sqrt(static_cast<double>(block * width))));
}

}  // namespace

// Blocks of rows in the forward pass, which makes the gradients; the backward pass hands them on.
Value Network::fused_loss(const TokenHead& head, const Value& states, std::int64_t width,
                          std::int64_t vocabulary) {
  const Value inner = head.inner ? head.inner(states) : states;
  Parameter& matrix = head.weight();
  const bool casts = situation.low && matrix.type == Type::float32;
  const Type type = casts ? *situation.low : matrix.type;
  const Value low = casts ? tape.make(matrix.count(), type) : Value();
  const Value weight = tape.use(matrix);
  const Value bias = head.bias != nullptr ? tape.use(*head.bias) : Value();
  Value loss = tape.make(1, Type::float32);
  Value to_states = tape.learns(inner) ? tape.make(inner.count, inner.type) : Value();
  Value to_weight = weight.has_gradient() ? tape.make(matrix.count(), matrix.type) : Value();
  Value to_bias = bias.has_gradient() ? tape.make(vocabulary, Type::float32) : Value();

  const std::int64_t rows = inner.count / width;
  const std::int64_t block = rows_of_block(rows, !head.after);
  const std::int64_t float_parts = type == Type::float32 ? 0 : vocabulary * size_of(Type::float32);
  std::int64_t rest = rows;
  if (to_weight && !head.after && matrix.type == type) {
    const std::int64_t first = rows_of_first(rows, block, width);
    const std::int64_t overwritten = (first * vocabulary + width - 1) / width;
    tape.touch(std::min(first, (block + 1) / 2) * float_parts);
    tape.touch(first * overwritten * size_of(type));
    rest -= first;
  }
  if (head.after) {
    const Value product = tape.make(block * vocabulary, type);
    tape.touch(block * vocabulary * (4 * size_of(type) + 4));
  } else if (rest > 0) {
    const std::int64_t blocks = (rest + block - 1) / block;
    const std::int64_t part = (rest + blocks - 1) / blocks;
    const Value product = tape.make(part * vocabulary, type);
    tape.touch((part + 15) / 16 * float_parts);
    if (to_weight && matrix.type != type)  // products of a block's size
      tape.touch(std::min(part * vocabulary, matrix.count()) * size_of(type));
  }
  const double products = 1.0 + (to_states ? 1 : 0) + (to_weight ? 1 : 0);
  compute(tape, type,
          {2.0 * static_cast<double>(rows) * static_cast<double>(matrix.count()),
           rows * (width + vocabulary) + matrix.count(), 0},
          products);
  if (to_bias) to_bias = cast(tape, to_bias, head.bias->type);
  if (!to_states && !to_weight && !to_bias) return loss;
  tape.record(loss, [inner = inner.edge, weight = weight.edge, bias = bias.edge,
                     to_states = std::move(to_states), to_weight = std::move(to_weight),
                     to_bias = std::move(to_bias)](Tape& t, Gradients&) mutable {
    t.send(inner, std::move(to_states));
    t.send(weight, std::move(to_weight));
    t.send(bias, std::move(to_bias));
  });
  return loss;
}

Value Network::classification_loss(const Value& logits) {
  (void)model::problem_type(config);
  if (!situation.trains || situation.holds_outputs) held.push_back(logits);
  if (!situation.trains) return {};
  if (config.labels() == 1) return mean_squared_error(tape, logits);
  return cross_entropy(tape, logits);
}

Value Network::last_tokens(const Value& logits) {
  (void)model::last_token_padding(config, situation.rows);
  return gathered(tape, logits, situation.rows * config.labels());
}

}  // namespace headroom::forecast::detail
