// Attention: masks, rotary positions, and the memory that each kernel allocates
// (sim/rules/attention.cpp does the same with tensors).
#include <algorithm>
#include <utility>

#include "headroom/forecast/detail/network.h"
#include "headroom/gpu/attention_memory.h"

namespace headroom::forecast::detail {
namespace {

bool is_half(Type type) {
  return type == Type::bfloat16 || type == Type::float16;
}

// Operations of two products of each query with all keys; `keys` counts the elements of all keys.
double work_of(std::int64_t queries, std::int64_t keys) {
  return 4 * static_cast<double>(keys) * static_cast<double>(queries);
}

Value by_token(Value x) {
  x.by_token = true;
  return x;
}

}  // namespace

// ---- Masks ----

Value Network::causal_mask(std::optional<std::int64_t> window, Type type, bool eager) {
  const std::int64_t rows = situation.rows, length = situation.length;
  // 4.57 takes rows without a mask for sequences that may be packed.
  const bool packed = !situation.newest && !situation.has_mask && !situation.keeps_cache;
  const bool sees_all = !window || length < *window;
  if (!eager && sees_all && !packed) return {};
  const std::int64_t of_each = situation.has_mask || packed ? rows : 1;
  Value mask = tape.make(of_each * length * length, Type::boolean);
  if (situation.has_mask || packed) tape.touch(length * length + (packed ? mask.count : 0));
  if (!eager) return mask;
  Value additive = tape.make(rows * length * length, type);
  return additive;
}

Value Network::additive_causal_mask(Type type, bool eager, bool given) {
  if (situation.newest) return causal_mask({}, type, eager);
  if (!eager) return {};
  const std::int64_t length = situation.length;
  Value one = tape.make(length * (given ? length : length + 1), type);
  tape.touch(2 * one.count * size_of(type));
  if (!given) return one;
  Value mask = tape.make(situation.rows * length * length, type);
  tape.touch(mask.count * 8 + mask.count);  // int64 sum with the mask, comparison with zero
  return mask;
}

// ---- Rotary positions ----

Network::Rotation Network::rotation(std::int64_t width, Type type) {
  const std::int64_t count = situation.length * width;
  return {tape.make(count, type), tape.make(count, type)};
}

Value Network::rotated(const Value& states, const Rotation& by) {
  const auto times_angle = [&](const Value& x) {
    Value result = times(tape, x, by.cos);
    result.by_token = x.by_token;
    return result;
  };
  const Value straight = times_angle(states);
  Value across;
  {
    const Value first = slice(tape, states, states.count / 2);
    Value second = slice(tape, states, states.count / 2);
    second = unary(tape, second, Keeps::nothing);
    across = cat(tape, second, first);
  }
  across = times_angle(across);
  return plus(tape, straight, across);
}

// ---- Kernels ----

Value Network::heads_of(Value projected) const {
  projected.by_token = true;
  return projected;
}

void Network::keep(Value& keys, Value& values) {
  if (!situation.keeps_cache) return;
  for (Value* const states : {&keys, &values}) {
    *states = copied(tape, *states);
    cache.push_back(*states);
    cache.back().edge = {};
  }
}

// expand() and a copy; the backward pass sums over each group.
Value Network::repeated(const Value& states, std::int64_t times) {
  if (times == 1) return states;
  return copied(tape, expanded(tape, states, states.count * times));
}

Value Network::matmul(const Value& a, const Value& b, std::int64_t count, std::int64_t heads) {
  return detail::matmul(tape, lowered(a), lowered(b), count, {situation.rows, heads});
}

Value Network::attend(const Value& q, const Value& k, const Value& v, const Value& mask,
                      const Heads& heads, Value* weights) {
  return situation.eager ? eager(q, k, v, mask, heads, weights) : sdpa(q, k, v, mask, heads);
}

Value Network::eager(const Value& q, const Value& k, const Value& v, const Value& mask,
                     const Heads& heads, Value* weights) {
  const std::int64_t times = heads.groups.value_or(1);
  const Value keys = repeated(k, times), values = repeated(v, times);
  const std::int64_t scores =
      q.count / heads.width * (keys.count / (situation.rows * heads.heads) / heads.width);
  Value seen = matmul(q, keys, scores, heads.heads);
  seen = times_number(tape, seen);
  if (heads.softcap != 0) {
    seen = times_number(tape, seen);
    seen = unary(tape, seen, Keeps::result);
    seen = times_number(tape, seen);
  }
  if (mask) seen = plus(tape, seen, mask);
  Value shares = softmax_in_float(seen);
  seen = cast(tape, shares, q.type);
  shares.reset();
  seen = dropout(seen, heads.dropout);
  const Value out = matmul(seen, values, q.count, heads.heads);
  if (weights != nullptr) *weights = seen;
  return copied(tape, out);
}

Value Network::sdpa(const Value& given_q, const Value& given_k, const Value& given_v,
                    const Value& given_mask, const Heads& heads) {
  Value k = given_k, v = given_v;
  std::int64_t times = heads.groups.value_or(1);
  if (given_mask && times > 1) {
    k = repeated(k, times);
    v = repeated(v, times);
    times = 1;
  }
  const Value q = lowered(given_q);
  k = lowered(k);
  v = lowered(v);
  Heads call = heads;
  call.groups = times;
  const Value mask = given_mask.type == Type::boolean ? given_mask : lowered(given_mask);
  const bool half = is_half(q.type);
  if (half && !mask && heads.width <= 256 && situation.chip >= 80) return by_flash(q, k, v, call);
  const std::int64_t alignment = half ? 8 : situation.chip >= 80 ? 4 : 1;
  const bool known = q.type != Type::bfloat16 || situation.chip >= 80;
  if (heads.width % alignment == 0 && times == 1 && known) return by_efficient(q, k, v, mask, call);
  return by_math(q, k, v, mask, call);
}

Value Network::by_flash(const Value& q, const Value& k, const Value& v, const Heads& heads) {
  const std::int64_t rows = situation.rows, of_heads = heads.heads;
  const std::int64_t queries = q.count / (rows * of_heads * heads.width);
  Value out = by_token(tape.make(q.count, q.type));
  Value statistics = tape.make(rows * of_heads * queries, Type::float32);
  const std::int64_t times = heads.groups.value_or(1);
  const Work work{work_of(queries, k.count * times), 2 * q.count + k.count + v.count, q.count};
  compute(tape, q.type, work);
  if (!tape.records() || !(q.edge || k.edge || v.edge)) return out;
  Value kept_q = q, kept_k = k, kept_v = v, kept_out = out;
  kept_q.edge = kept_k.edge = kept_v.edge = {};
  const gpu::FlashTile tile = gpu::flash_tile(queries, heads.width);
  const std::int64_t on_the_way = 4 * rows * of_heads * tile.queries * (1 + tile.head_dim) +
                                  (times > 1 ? 2 * times * k.count * size_of(k.type) : 0);
  tape.record(
      out, [to_q = q.edge, to_k = k.edge, to_v = v.edge, kept_q = std::move(kept_q),
            kept_k = std::move(kept_k), kept_v = std::move(kept_v), kept_out = std::move(kept_out),
            statistics = std::move(statistics), on_the_way, work](Tape& t, Gradients&) {
        Value dq = t.make(kept_q.count, kept_q.type), dk = t.make(kept_k.count, kept_k.type),
              dv = t.make(kept_v.count, kept_v.type);
        dq.by_token = kept_q.by_token;
        dk.by_token = kept_k.by_token;
        dv.by_token = kept_v.by_token;
        t.touch(on_the_way);
        compute(t, kept_q.type, work, 2.5);
        t.send(to_q, std::move(dq));
        t.send(to_k, std::move(dk));
        t.send(to_v, std::move(dv));
      });
  return out;
}

Value Network::by_efficient(const Value& q, const Value& k, const Value& v, const Value& mask,
                            const Heads& heads) {
  const std::int64_t rows = situation.rows;
  const std::int64_t queries = q.count / (rows * heads.heads * heads.width);
  const std::int64_t keys = k.count / (rows * heads.heads * heads.width);
  Value bias = mask;
  if (mask.type == Type::boolean && mask) {  // converted to numbers in each call
    bias = tape.make(rows * queries * keys, q.type);
    tape.touch(bias.count);
    if (keys % (is_half(q.type) ? 8 : 4) != 0)
      bias = tape.make(rows * queries * gpu::efficient_mask_row(keys), q.type);
  }
  Value out = by_token(tape.make(q.count, q.type));
  const bool learns = tape.records() && (q.edge || k.edge || v.edge);
  Value statistics =
      tape.make(std::max<std::int64_t>(
                    1, learns ? rows * heads.heads * gpu::efficient_statistics(queries) : 0),
                Type::float32);
  const Work work{work_of(queries, k.count), 2 * q.count + k.count + v.count, q.count};
  compute(tape, q.type, work);
  const gpu::EfficientCall call{.half = is_half(q.type),
                                .chip = situation.chip,
                                .batch = rows,
                                .heads = heads.heads,
                                .queries = queries,
                                .keys = keys,
                                .head_dim = heads.width,
                                .value_dim = heads.width,
                                .dropout = heads.dropout > 0 && situation.trains};
  if (gpu::efficient_accumulates(call)) tape.touch(4 * q.count);
  if (!learns) return out;
  Value kept_q = q, kept_k = k, kept_v = v, kept_out = out;
  const auto to_bias = mask.edge;
  kept_q.edge = kept_k.edge = kept_v.edge = bias.edge = {};
  tape.record(out, [to_q = q.edge, to_k = k.edge, to_v = v.edge, kept_q = std::move(kept_q),
                    kept_k = std::move(kept_k), kept_v = std::move(kept_v),
                    kept_out = std::move(kept_out), statistics = std::move(statistics),
                    bias = std::move(bias), to_bias, call, work](Tape& t, Gradients&) {
    Value for_bias =
        to_bias ? t.make(call.batch * call.heads * call.queries * call.keys, kept_q.type) : Value();
    Value dq = by_token(t.make(kept_q.count, kept_q.type)),
          dk = by_token(t.make(kept_k.count, kept_k.type)),
          dv = by_token(t.make(kept_v.count, kept_v.type));
    const std::int64_t delta = 4 * call.batch * call.heads * call.queries;
    if (!call.half) t.touch(4 * kept_out.count + delta);
    {
      const Value sums = t.make(delta, Type::boolean);
      t.touch(gpu::efficient_workspace(call));
      compute(t, kept_q.type, work, 2.5);
    }
    t.send(to_q, std::move(dq));
    t.send(to_k, std::move(dk));
    t.send(to_v, std::move(dv));
    if (to_bias) t.send(to_bias, std::move(for_bias));
  });
  return out;
}

// aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.
Value Network::by_math(const Value& given_q, const Value& given_k, const Value& given_v,
                       const Value& given_mask, const Heads& heads) {
  const Type type = given_q.type;
  const Value q_in_float = cast(tape, given_q, Type::float32);
  const Value k_in_float = cast(tape, given_k, Type::float32);
  const Value v_in_float = cast(tape, given_v, Type::float32);
  const std::int64_t times = heads.groups.value_or(1), rows = situation.rows;
  const std::int64_t queries = q_in_float.count / (rows * heads.heads * heads.width);
  const Value q = times_number(tape, q_in_float);
  Value mask = given_mask;
  if (!mask && heads.causal) {
    const Value seen = tape.make(queries * queries, Type::boolean);
    tape.touch(queries * queries);
    mask = tape.make(queries * queries, Type::float32);
  } else if (mask && mask.type == Type::boolean) {
    mask = tape.make(mask.count, Type::float32);
    tape.touch(mask.count);
  }
  const Value keys = repeated(k_in_float, times), values = repeated(v_in_float, times);
  const std::int64_t scores =
      q.count / heads.width * (keys.count / (rows * heads.heads * heads.width));
  Value shares = detail::matmul(tape, q, times_number(tape, keys), scores, {rows, heads.heads});
  if (mask) add_to(tape, shares, mask);
  {
    const Value before = shares;
    shares = softmax(tape, before);
    tape.touch(scores);
  }
  shares = dropout(shares, heads.dropout);
  const Value out = detail::matmul(tape, shares, values, q.count, {rows, heads.heads});
  return copied(tape, cast(tape, out, type));
}

}  // namespace headroom::forecast::detail
