// Feed-forward blocks of models/families/: GatedMlp of decoder.cpp, mixtral.cpp,
// stacked_experts.cpp.
#include <utility>
#include <vector>

#include "headroom/forecast/detail/decoder_network.h"

namespace headroom::forecast::detail {
namespace {

// The sum over each token's experts; its gradient is copied to all of them.
Value summed(Tape& tape, const Value& each, std::int64_t count) {
  Value result = tape.make(count, each.type);
  if (tape.records() && each.edge)
    tape.record(result, [to = each.edge, of = each.count, type = each.type](Tape& t, Gradients&) {
      t.send(to, t.make(of, type));
    });
  return result;
}

Value all_at_once(Network& net, const DecoderKind& of, const Value& x, const Value& logits) {
  Tape& tape = net.tape;
  const std::int64_t rows = x.count / of.width * of.experts_each;
  Value shares = net.softmax_in_float(cast(tape, logits, Type::float32));
  shares = gathered(tape, shares, rows);
  shares = unary(tape, shares, Keeps::result);
  const Value order = tape.make(2 * rows, Type::int64);
  Value inner = gathered(tape, x, rows * of.width);
  const Value sorted_shares = gathered(tape, shares, rows);
  inner = net.grouped(inner, of.width, 2 * of.inner, of.experts);
  {
    const std::int64_t half = inner.count / 2;
    const std::vector<Value> halves = split(tape, inner, {half, half});
    const Value gate = activation(tape, of.function, halves[0]);
    inner = times(tape, gate, halves[1]);
  }
  Value out = net.grouped(inner, of.inner, of.width, of.experts);
  out = times(tape, cast(tape, out, Type::float32), sorted_shares);
  out = gathered(tape, out, out.count);
  return cast(tape, summed(tape, out, x.count), x.type);
}

// index_add: the gradient of `rows` is gathered from that of the sum.
Value gathered_back(Tape& tape, const Value& rows, std::int64_t all) {
  Value result = rows;
  result.edge = {};
  result.count = all;
  if (tape.records() && rows.edge)
    tape.record(result, [to = rows.edge, count = rows.count](Tape& t, Gradients& g) {
      t.send(to, t.make(count, g[0].type));
    });
  return result;
}

// In 4.57. Assumes that tokens spread evenly over the experts.
Value one_by_one(Network& net, const DecoderKind& of, const Value& x, const Value& logits) {
  Tape& tape = net.tape;
  const std::int64_t choices = x.count / of.width * of.experts_each, rows = choices / of.experts;
  Value shares = net.softmax_in_float(logits);
  shares = gathered(tape, shares, choices);
  shares = cast(tape, unary(tape, shares, Keeps::result), x.type);
  const Value places = tape.make(choices * of.experts, Type::int64);
  const auto add_one = [&](Value sum) {
    const Value input = gathered(tape, x, rows * of.width);
    Value output = gated(net, of, input, {"experts.w1", "experts.w3", "experts.w2"});
    output = times(tape, output, gathered(tape, shares, rows));
    output = gathered_back(tape, cast(tape, output, x.type), sum.count);
    add_to(tape, sum, output);
    return sum;
  };
  return tape.repeat(of.experts, add_one, tape.make(x.count, x.type));
}

}  // namespace

Value gated(Network& net, const DecoderKind& of, const Value& x, const GatedNames& names) {
  const auto widened = [&](std::string_view path) {
    return net.linear(x, of.width, of.inner, path, {.with_bias = of.mlp_bias});
  };
  Value inner = widened(names.gate);
  inner = activation(net.tape, of.function, inner);
  {
    const Value other = widened(names.up);
    inner = times(net.tape, inner, other);
  }
  return net.linear(inner, of.inner, of.width, names.down, {.with_bias = of.mlp_bias});
}

Value experts(Network& net, const DecoderKind& of, const Value& x) {
  const Value logits =
      net.linear(x, of.width, of.experts, "block_sparse_moe.gate", {.with_bias = false});
  return net.situation.newest ? all_at_once(net, of, x, logits) : one_by_one(net, of, x, logits);
}

}  // namespace headroom::forecast::detail
