#include "headroom/forecast/detail/operators.h"

#include <algorithm>
#include <array>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::forecast::detail {
namespace {

// A result with the size, type and layout of `x`.
Value like(Tape& tape, const Value& x) {
  Value result = tape.make(x.count, x.type);
  result.by_token = x.by_token;
  return result;
}

// The gradient in the size and type of its value: summed if that was broadcast, or cast.
Value fitted(Tape& tape, Value gradient, std::int64_t count, Type type) {
  if (gradient.count > count) gradient = tape.make(count, gradient.type);
  if (gradient.type != type) gradient = tape.make(gradient.count, type);
  return gradient;
}

}  // namespace

// ---- Copies and views ----

Value cast(Tape& tape, const Value& x, Type type) {
  if (x.type == type) return x;
  Value result = tape.make(x.count, type);
  result.by_token = x.by_token;
  if (tape.learns(x))
    tape.record(result, [to = x.edge, from = x.type](Tape& t, Gradients& g) {
      t.send(to, t.make(g[0].count, from));
    });
  return result;
}

Value copied(Tape& tape, const Value& x) {
  Value result = tape.make(x.count, x.type);
  if (tape.learns(x))
    tape.record(result, [to = x.edge](Tape& t, Gradients& g) { t.send(to, g[0]); });
  return result;
}

Value slice(Tape& tape, const Value& x, std::int64_t count) {
  if (count == x.count) return x;
  Value result = x;
  result.count = count;
  result.edge = {};
  if (tape.learns(x))
    tape.record(result, [to = x.edge, all = x.count](Tape& t, Gradients& g) {
      t.send(to, t.make(all, g[0].type));
    });
  return result;
}

std::vector<Value> split(Tape& tape, const Value& x, std::initializer_list<std::int64_t> counts) {
  std::vector<Value> parts;
  Node* node = nullptr;
  if (tape.learns(x))
    node = &tape.record([to = x.edge, all = x.count, type = x.type](Tape& t, Gradients&) {
      t.send(to, t.make(all, type));
    });
  for (const std::int64_t count : counts) {
    Value part = x;
    part.count = count;
    part.edge = node == nullptr ? Edge() : Edge{node, nullptr, static_cast<int>(parts.size())};
    parts.push_back(std::move(part));
  }
  return parts;
}

Value cat(Tape& tape, const Value& a, const Value& b) {
  Value result = tape.make(a.count + b.count, promoted(a.type, b.type));
  if (!tape.learns(a) && !tape.learns(b)) return result;
  tape.record(result, [to_a = a.edge, to_b = b.edge, in_a = a.count, in_b = b.count](Tape& t,
                                                                                     Gradients& g) {
    Value part = g[0];
    part.count = in_a;
    t.send(to_a, part);
    part.count = in_b;
    t.send(to_b, std::move(part));
  });
  return result;
}

Value expanded(Tape& tape, const Value& x, std::int64_t count) {
  Value result = x;
  const Edge to = std::exchange(result.edge, {});
  result.count = count;
  if (to && tape.records())
    tape.record(result, [to, all = x.count, type = x.type](Tape& t, Gradients& g) {
      t.send(to, fitted(t, std::move(g[0]), all, type));
    });
  return result;
}

Value gathered(Tape& tape, const Value& x, std::int64_t count) {
  Value result = tape.make(count, x.type);
  if (tape.learns(x))
    tape.record(result, [to = x.edge, all = x.count](Tape& t, Gradients& g) {
      t.send(to, t.make(all, g[0].type));
    });
  return result;
}

// ---- Elementwise ----

Value unary(Tape& tape, const Value& x, Keeps keeps, int on_the_way) {
  Value result = like(tape, x);
  if (!tape.learns(x)) return result;
  const Edge to = x.edge;
  Value kept = keeps == Keeps::input ? x : keeps == Keeps::result ? result : Value();
  kept.edge = {};
  tape.record(result, [to, kept = std::move(kept), on_the_way](Tape& t, Gradients& g) {
    const Value one = on_the_way > 0 ? like(t, g[0]) : Value();
    const Value other = on_the_way > 1 ? like(t, g[0]) : Value();
    t.send(to, like(t, g[0]));
  });
  return result;
}

Value times_number(Tape& tape, const Value& x) {
  return unary(tape, x, Keeps::nothing);
}

Value plus_number(Tape& tape, const Value& x) {
  Value result = like(tape, x);
  if (tape.learns(x))
    tape.record(result, [to = x.edge](Tape& t, Gradients& g) { t.send(to, g[0]); });
  return result;
}

namespace {

Backward sum_backward(const Value& a, const Value& b) {
  return [to_a = a.edge, to_b = b.edge, in_a = a.count, in_b = b.count, type_a = a.type,
          type_b = b.type](Tape& t, Gradients& g) {
    if (to_a) t.send(to_a, fitted(t, g[0], in_a, type_a));
    if (to_b) t.send(to_b, fitted(t, g[0], in_b, type_b));
  };
}

}  // namespace

Value plus(Tape& tape, const Value& a, const Value& b) {
  Value result = tape.make(std::max(a.count, b.count), promoted(a.type, b.type));
  result.by_token = a.by_token;
  if (tape.learns(a) || tape.learns(b)) tape.record(result, sum_backward(a, b));
  return result;
}

void add_to(Tape& tape, Value& a, const Value& b) {
  if (tape.learns(a) || tape.learns(b)) tape.record(a, sum_backward(a, b));
}

Value times(Tape& tape, const Value& a, const Value& b) {
  Value result = tape.make(std::max(a.count, b.count), promoted(a.type, b.type));
  result.by_token = a.by_token || b.by_token;
  if (!tape.learns(a) && !tape.learns(b)) return result;
  Value kept_a = b.edge ? a : Value(), kept_b = a.edge ? b : Value();
  kept_a.edge = kept_b.edge = {};
  tape.record(result, [to_a = a.edge, to_b = b.edge, in_a = a.count, in_b = b.count,
                       type_a = a.type, type_b = b.type, kept_a = std::move(kept_a),
                       kept_b = std::move(kept_b)](Tape& t, Gradients& g) {
    Value for_a = to_a ? like(t, g[0]) : Value();
    Value for_b = to_b ? like(t, g[0]) : Value();
    if (to_a) t.send(to_a, fitted(t, std::move(for_a), in_a, type_a));
    if (to_b) t.send(to_b, fitted(t, std::move(for_b), in_b, type_b));
  });
  return result;
}

Value power(Tape& tape, const Value& x) {
  return unary(tape, tape.autocast() ? cast(tape, x, Type::float32) : x, Keeps::input, 2);
}

Value masked(Tape& tape, const Value& x) {
  return unary(tape, x, Keeps::nothing);
}

Value dropout(Tape& tape, const Value& x, double share) {
  if (share <= 0) return x;
  Value result = like(tape, x);
  Value mask = tape.make(x.count, Type::boolean);
  if (tape.learns(x))
    tape.record(result, [to = x.edge, mask = std::move(mask)](Tape& t, Gradients& g) {
      t.send(to, like(t, g[0]));
    });
  return result;
}

namespace {

// GELU variants as transformers' Python functions, step by step.
Value gelu_new(Tape& tape, const Value& x) {
  const Value half = times_number(tape, x);
  Value inner = power(tape, x);
  inner = times_number(tape, inner);
  inner = plus(tape, x, inner);
  inner = times_number(tape, inner);
  inner = unary(tape, inner, Keeps::result);
  inner = plus_number(tape, inner);
  return times(tape, half, inner);
}

Value gelu_fast(Tape& tape, const Value& x) {
  const Value half = times_number(tape, x);
  const Value scaled = times_number(tape, x);
  Value inner = times_number(tape, x);
  inner = times(tape, inner, x);
  inner = plus_number(tape, inner);
  inner = times(tape, scaled, inner);
  inner = unary(tape, inner, Keeps::result);
  inner = plus_number(tape, inner);
  return times(tape, half, inner);
}

Value quick_gelu(Tape& tape, const Value& x) {
  Value gate = times_number(tape, x);
  gate = unary(tape, gate, Keeps::result);
  return times(tape, x, gate);
}

enum class Form {
  keeps_input,
  keeps_result,
  itself,
  gelu_new,
  gelu_fast,
  quick_gelu,
  clipped,
  squared
};
constexpr std::array<std::pair<std::string_view, Form>, 16> kActivations{
    {{"gelu", Form::keeps_input},
     {"gelu_10", Form::clipped},
     {"gelu_fast", Form::gelu_fast},
     {"gelu_new", Form::gelu_new},
     {"gelu_pytorch_tanh", Form::keeps_input},
     {"leaky_relu", Form::keeps_input},
     {"linear", Form::itself},
     {"mish", Form::keeps_input},
     {"quick_gelu", Form::quick_gelu},
     {"relu", Form::keeps_result},
     {"relu2", Form::squared},
     {"relu6", Form::keeps_input},
     {"sigmoid", Form::keeps_result},
     {"silu", Form::keeps_input},
     {"swish", Form::keeps_input},
     {"tanh", Form::keeps_result}}};

}  // namespace

Value activation(Tape& tape, std::string_view name, const Value& x) {
  for (const auto& [known, form] : kActivations) {
    if (known != name) continue;
    switch (form) {
      case Form::keeps_input:
        return unary(tape, x, Keeps::input);
      case Form::keeps_result:
        return unary(tape, x, Keeps::result);
      case Form::itself:
        return x;
      case Form::gelu_new:
        return gelu_new(tape, x);
      case Form::gelu_fast:
        return gelu_fast(tape, x);
      case Form::quick_gelu:
        return quick_gelu(tape, x);
      case Form::clipped:
        return unary(tape, unary(tape, x, Keeps::input), Keeps::input);
      case Form::squared:
        return power(tape, unary(tape, x, Keeps::result));
    }
  }
  throw InternalError("activation", "unknown: " + std::string(name));
}

}  // namespace headroom::forecast::detail
