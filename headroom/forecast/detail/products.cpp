// Norms, products and losses.
#include <cmath>
#include <utility>

#include "headroom/forecast/detail/operators.h"
#include "headroom/gpu/reduction.h"

namespace headroom::forecast::detail {
// ---- Sums and norms ----

Value mean_of_rows(Tape& tape, const Value& x, std::int64_t rows) {
  return gathered(tape, x, rows);  // the same sizes, forward and backward
}

// The backward kernel multiplies gradient and result first (aten/src/ATen/native/cuda/SoftMax.cu,
// softmax_backward_cuda_out).
Value softmax(Tape& tape, const Value& x) {
  Value result = tape.make(x.count, x.type);
  if (!tape.learns(x)) return result;
  Value kept = result;
  tape.record(result, [to = x.edge, kept = std::move(kept)](Tape& t, Gradients& g) {
    Value gradient = t.make(g[0].count, g[0].type);
    t.touch(g[0].count * size_of(g[0].type));
    t.send(to, std::move(gradient));
  });
  return result;
}

Value layer_norm(Tape& tape, const Value& x, std::int64_t columns, Parameter* weight,
                 Parameter* bias) {
  Value result = tape.make(x.count, x.type);
  const std::int64_t rows = x.count / columns;
  Value mean = tape.make(rows, Type::float32), deviation = tape.make(rows, Type::float32);
  const Value scale = weight != nullptr ? tape.use(*weight) : Value();
  const Value shift = bias != nullptr ? tape.use(*bias) : Value();
  if (!tape.learns(x) && !scale.has_gradient()) return result;
  Value kept = x;
  kept.edge = {};
  tape.record(
      result, [to = x.edge, scale, shift, columns, rows, kept = std::move(kept),
               mean = std::move(mean), deviation = std::move(deviation)](Tape& t, Gradients& g) {
        if (to) t.send(to, t.make(kept.count, kept.type));
        for (const Value& parameter : {scale, shift}) {
          if (!parameter.has_gradient()) continue;
          Value gradient = t.make(columns, parameter.type);
          if (const std::int64_t partial = gpu::layer_norm_partial_rows(rows, columns, t.chip());
              partial > 0)
            t.touch(2 * partial * columns * size_of(parameter.type));
          t.send(parameter.edge, std::move(gradient));
        }
        (void)g;
      });
  return result;
}

Value batch_norm(Tape& tape, const Value& x, Parameter& weight, Parameter& bias) {
  Value result = tape.make(x.count, x.type);
  const std::int64_t channels = weight.count();
  Value mean = tape.make(channels, Type::float32), deviation = tape.make(channels, Type::float32);
  const Value scale = tape.use(weight), shift = tape.use(bias);
  if (!tape.learns(x) && !scale.has_gradient()) return result;
  Value kept = x;
  kept.edge = {};
  tape.record(result,
              [to = x.edge, scale, shift, channels, kept = std::move(kept), mean = std::move(mean),
               deviation = std::move(deviation)](Tape& t, Gradients&) {
                // The kernel computes sums first, then reads everything again.
                t.effort().add_read(2.0 * static_cast<double>(kept.count * size_of(kept.type)));
                if (to) t.send(to, t.make(kept.count, kept.type));
                for (const Value& parameter : {scale, shift})
                  if (parameter.has_gradient())
                    t.send(parameter.edge, t.make(channels, parameter.type));
              });
  return result;
}

// ---- Products ----

namespace {

Arithmetic arithmetic_of(Type type) {
  return type == Type::bfloat16  ? Arithmetic::bfloat16
         : type == Type::float16 ? Arithmetic::float16
                                 : Arithmetic::float32;
}

void note(Tape& tape, Arithmetic arithmetic, Type type, const Work& work, double times) {
  const double each = times * static_cast<double>(size_of(type));
  tape.effort().add_product(arithmetic, times * work.operations,
                            each * static_cast<double>(work.elements));
  tape.effort().add_written(-each * static_cast<double>(work.result));
}

void convolve(Tape& tape, Type type, const Work& work) {
  const Arithmetic arithmetic = arithmetic_of(type);
  note(tape, arithmetic == Arithmetic::float32 ? Arithmetic::tf32 : arithmetic, type, work, 1);
}

// The gradient of a bias: the kernel that sums it needs scratch memory.
void sum_rows(Tape& tape, std::int64_t rows, std::int64_t columns) {
  if (tape.chip() == nullptr) return;
  const Bytes parts = memory_of(gpu::sum_of_rows(rows, columns), *tape.chip()).parts;
  if (parts > Bytes{}) tape.touch(parts.count);
}

}  // namespace

void compute(Tape& tape, Type type, const Work& work, double times) {
  note(tape, arithmetic_of(type), type, work, times);
}

Value product(Tape& tape, const Value& x, const Value& weight, const Value& bias, std::int64_t in,
              std::int64_t out) {
  const std::int64_t rows = x.count / in;
  Value result = tape.make(rows * out, x.type);
  const double operations = 2.0 * static_cast<double>(rows * in) * static_cast<double>(out);
  // The backward pass has the same three sizes in other roles.
  const std::int64_t elements = x.count + weight.count + result.count;
  compute(tape, x.type, {operations, elements, result.count});
  if (!tape.learns(x) && !tape.learns(weight) && !tape.learns(bias)) return result;
  Value kept_x = weight.edge ? x : Value(), kept_weight = x.edge ? weight : Value();
  kept_x.edge = kept_weight.edge = {};
  tape.record(result, [to = x.edge, in_x = x.count, to_weight = weight.edge, to_bias = bias.edge,
                       in_weight = weight.count, in_bias = bias.count, rows, operations, elements,
                       kept_x = std::move(kept_x),
                       kept_weight = std::move(kept_weight)](Tape& t, Gradients& g) {
    const Type type = g[0].type;
    if (to) compute(t, type, {operations, elements, in_x});
    if (to_weight) compute(t, type, {operations, elements, in_weight});
    Value for_x = to ? t.make(in_x, type) : Value();
    Value for_weight = to_weight ? t.make(in_weight, type) : Value();
    if (to_bias) {
      Value for_bias = t.make(in_bias, type);
      sum_rows(t, rows, in_bias);
      t.send(to_bias, std::move(for_bias));
    }
    if (to) t.send(to, std::move(for_x));
    if (to_weight) t.send(to_weight, std::move(for_weight));
  });
  return result;
}

Value widened_product(Tape& tape, const Value& x, const Value& weight, std::int64_t in,
                      std::int64_t out) {
  const std::int64_t rows = x.count / in;
  const Value wide = tape.make(x.count, weight.type);
  Value result = tape.make(rows * out, weight.type);
  const Work work{2.0 * static_cast<double>(rows * in) * static_cast<double>(out),
                  x.count + weight.count + result.count, result.count};
  compute(tape, weight.type, work);
  if (!tape.learns(x) && !tape.learns(weight)) return result;
  Value kept_x = weight.edge ? x : Value(), kept_weight = x.edge ? weight : Value();
  kept_x.edge = kept_weight.edge = {};
  tape.record(result, [to = x.edge, in_x = x.count, low = x.type, to_weight = weight.edge,
                       in_weight = weight.count, work, kept_x = std::move(kept_x),
                       kept_weight = std::move(kept_weight)](Tape& t, Gradients& g) {
    const Type type = g[0].type;
    Value for_x, for_weight;
    if (to) {
      compute(t, type, work);
      const Value in_wide = t.make(in_x, type);
      for_x = t.make(in_x, low);
    }
    if (to_weight) {
      compute(t, type, work);
      const Value wide_again = t.make(in_x, type);
      for_weight = t.make(in_weight, type);
    }
    if (to) t.send(to, std::move(for_x));
    if (to_weight) t.send(to_weight, std::move(for_weight));
  });
  return result;
}

Value matmul(Tape& tape, const Value& a, const Value& b, std::int64_t count,
             const Matrices& matrices) {
  const Value left = a.by_token && matrices.rows > 1 ? copied(tape, a) : a;
  const Value right = b.by_token && matrices.rows > 1 ? copied(tape, b) : b;
  Value result = tape.make(count, promoted(a.type, b.type));
  // The tensors have g m k, g k n and g m n elements; the work is 2 g m k n operations.
  const double operations =
      2 *
      std::sqrt(static_cast<double>(a.count) * static_cast<double>(b.count) *
                static_cast<double>(count) / static_cast<double>(matrices.rows * matrices.heads));
  const std::int64_t elements = a.count + b.count + count;
  compute(tape, result.type, {operations, elements, count});
  if (!tape.learns(left) && !tape.learns(right)) return result;
  Value kept_left = right.edge ? left : Value(), kept_right = left.edge ? right : Value();
  kept_left.edge = kept_right.edge = {};
  tape.record(result,
              [to_left = left.edge, to_right = right.edge, in_left = left.count,
               in_right = right.count, operations, elements, kept_left = std::move(kept_left),
               kept_right = std::move(kept_right)](Tape& t, Gradients& g) {
                const Type type = g[0].type;
                Value for_left = to_left ? t.make(in_left, type) : Value();
                Value for_right = to_right ? t.make(in_right, type) : Value();
                if (to_left) compute(t, type, {operations, elements, in_left});
                if (to_right) compute(t, type, {operations, elements, in_right});
                t.send(to_left, std::move(for_left));
                t.send(to_right, std::move(for_right));
              });
  return result;
}

// CUDA sorts more than 3072 indices and sums in float: aten/src/ATen/native/cuda/Embedding.cu.
Value embedding(Tape& tape, Parameter& weight, std::int64_t indices) {
  const Value table = tape.use(weight);
  Value result = tape.make(indices * weight.columns, weight.type);
  if (!table.has_gradient()) return result;
  tape.record(result, [to = table.edge, all = table.count, indices](Tape& t, Gradients& g) {
    Value gradient = t.make(all, g[0].type);
    if (indices > 3072) t.touch(6 * indices * size_of(Type::int64) + g[0].count * 4);
    t.send(to, std::move(gradient));
  });
  return result;
}

Image result_of(const Image& x, const Convolution& of) {
  const auto side = [&](std::int64_t size) {
    return (size + 2 * of.padding - of.kernel) / of.stride + 1;
  };
  return {x.rows, of.out, side(x.height), side(x.width)};
}

Value convolution(Tape& tape, const Value& x, const Value& weight, const Value& bias,
                  std::int64_t channels, std::int64_t count) {
  const Value input = x.by_token ? copied(tape, x) : x;
  Value result = tape.make(count, x.type);
  const double operations = 2 * static_cast<double>(count) *
                            (static_cast<double>(weight.count) / static_cast<double>(channels));
  const std::int64_t elements = x.count + weight.count + count;
  convolve(tape, x.type, {operations, elements, count});
  if (!tape.learns(x) && !tape.learns(weight)) return result;
  Value kept_x = x, kept_weight = weight;
  kept_x.edge = kept_weight.edge = {};
  tape.record(result, [to = x.edge, to_weight = weight.edge, to_bias = bias.edge,
                       kept_x = std::move(kept_x), kept_weight = std::move(kept_weight),
                       in_bias = bias.count, operations, elements](Tape& t, Gradients& g) {
    const Type type = g[0].type;
    if (to) convolve(t, type, {operations, elements, kept_x.count});
    if (to_weight) convolve(t, type, {operations, elements, kept_weight.count});
    if (to) t.send(to, t.make(kept_x.count, type));
    if (to_weight) t.send(to_weight, t.make(kept_weight.count, type));
    if (to_bias) t.send(to_bias, t.make(in_bias, type));
  });
  return result;
}

Value max_pool(Tape& tape, const Value& x, std::int64_t count) {
  Value result = tape.make(count, x.type);
  Value places = tape.make(count, Type::int64);
  if (!tape.learns(x)) return result;
  Value kept = x;
  kept.edge = {};
  tape.record(result, [to = x.edge, kept = std::move(kept), places = std::move(places)](
                          Tape& t, Gradients&) { t.send(to, t.make(kept.count, kept.type)); });
  return result;
}

// ---- Losses ----

// Under autocast log_softmax keeps the type of the logits; the loss casts its result to float.
Value cross_entropy(Tape& tape, const Value& logits) {
  Value shares = unary(tape, logits, Keeps::result);  // log_softmax
  if (tape.autocast()) shares = cast(tape, shares, Type::float32);
  Value loss = tape.make(1, shares.type);
  if (!tape.learns(shares)) return loss;
  const Edge to = std::exchange(shares.edge, {});
  tape.record(loss, [to, shares = std::move(shares)](Tape& t, Gradients&) {
    t.send(to, t.make(shares.count, shares.type));
  });
  return loss;
}

Value mean_squared_error(Tape& tape, const Value& x) {
  Value loss = tape.make(1, x.type);
  if (!tape.learns(x)) return loss;
  Value kept = x;
  kept.edge = {};
  tape.record(loss, [to = x.edge, kept = std::move(kept)](Tape& t, Gradients&) {
    t.send(to, t.make(kept.count, kept.type));
  });
  return loss;
}

}  // namespace headroom::forecast::detail
