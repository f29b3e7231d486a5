#include "headroom/parallel/pretended_ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "headroom/base/error.h"
#include "headroom/parallel/detail/done_work.h"
#include "headroom/parallel/detail/timer.h"

namespace headroom::parallel {
namespace {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;
using detail::done;
using detail::parts;
using detail::Tensors;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
// Writes below autograd, which does not see NCCL's writes.
using Unseen = at::AutoDispatchBelowADInplaceOrView;

double factor_of(const ReduceOp& op) {
  const auto& given = static_cast<const c10d::NCCLPreMulSumSupplement&>(*op.supplement_);
  return given.tensor_factor.defined() ? given.tensor_factor.item<double>() : given.double_factor;
}

class PretendedRanks final : public c10d::Backend {
 public:
  PretendedRanks(int rank, int size) : Backend(rank, size) {}
  const std::string getBackendName() const override { return "pretend"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions&) override {
    return done(OpType::BROADCAST, tensors);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return reduce_all(tensors, options.reduceOp, OpType::ALLREDUCE);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return reduce_all(tensors, options.reduceOp, OpType::ALLREDUCE_COALESCED);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    if (options.rootRank != rank_) return done(OpType::REDUCE, tensors);
    return reduce_all(tensors, options.reduceOp, OpType::REDUCE);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override {
    gather_into(outputs, inputs);
    return done(OpType::ALLGATHER, outputs);
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions&) override {
    repeat(output, input);
    return done(OpType::_ALLGATHER_BASE, Tensors{output});
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions&) override {
    const Unseen unseen;
    for (Tensors& of_rank : outputs)
      for (std::size_t i = 0; i < of_rank.size(); ++i) of_rank[i].copy_(inputs[i]);
    return done(OpType::COALESCED, outputs);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) override {
    for (std::size_t i = 0; i < outputs.size(); ++i) repeat(outputs[i], inputs[i]);
    return done(OpType::COALESCED, outputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions&) override {
    const Unseen unseen;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      for (Tensor& output : outputs[i]) output.copy_(inputs[i]);
    return done(OpType::GATHER, outputs);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions&) override {
    const Unseen unseen;
    for (std::size_t i = 0; i < inputs.size(); ++i) outputs[i].copy_(inputs[i][place()]);
    return done(OpType::SCATTER, outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      detail::flatten_as_nccl_does(inputs[i]);
      reduce_into(outputs[i], inputs[i][place()], options.reduceOp);
    }
    return done(OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    reduce_into(output, parts(input, size_)[place()], options.reduceOp);
    return done(OpType::_REDUCE_SCATTER_BASE, Tensors{output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    for (std::size_t i = 0; i < outputs.size(); ++i)
      reduce_into(outputs[i], parts(inputs[i], size_)[place()], options.reduceOp);
    return done(OpType::COALESCED, outputs);
  }

  // Each other rank sends this one as much as this rank sends to itself.
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes,
                        const c10d::AllToAllOptions&) override {
    const Tensors sent = parts(input, size_, input_sizes);
    Tensors received = parts(output, size_, output_sizes);
    receive(received, sent[place()]);
    return done(OpType::ALLTOALL_BASE, Tensors{output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    receive(outputs, inputs[place()]);
    return done(OpType::ALLTOALL, outputs);
  }

  WorkPtr send(Tensors& tensors, int, int) override { return done(OpType::SEND, tensors); }
  WorkPtr recv(Tensors& tensors, int, int) override { return done(OpType::RECV, tensors); }
  WorkPtr recvAnysource(Tensors& tensors, int) override {
    return done(OpType::RECVANYSOURCE, tensors);
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return done(OpType::BARRIER); }

 private:
  [[nodiscard]] std::size_t place() const { return static_cast<std::size_t>(rank_); }

  void combine(Tensor& tensor, const ReduceOp& op) const {
    const Unseen unseen;
    switch (static_cast<ReduceOp::RedOpType>(op)) {
      case ReduceOp::SUM:
        if (tensor.scalar_type() != at::kBool) tensor.mul_(size_);
        break;
      case ReduceOp::PREMUL_SUM:
        tensor.mul_(factor_of(op) * size_);
        break;
      case ReduceOp::PRODUCT:
        tensor.pow_(size_);
        break;
      case ReduceOp::BXOR:
        if (size_ % 2 == 0) tensor.zero_();
        break;
      default:  // AVG, MIN, MAX, BAND and BOR of equal tensors change nothing
        break;
    }
  }

  WorkPtr reduce_all(Tensors& tensors, const ReduceOp& op, OpType type) const {
    for (Tensor& tensor : tensors) combine(tensor, op);
    return done(type, tensors);
  }

  void reduce_into(Tensor& output, const Tensor& mine, const ReduceOp& op) const {
    const Unseen unseen;
    output.copy_(mine.view_as(output));
    combine(output, op);
  }

  void repeat(Tensor& output, const Tensor& input) const {
    const Unseen unseen;
    output.view({size_, -1}).copy_(input.reshape({1, -1}).expand({size_, -1}));
  }

  static void gather_into(std::vector<Tensors>& outputs, const Tensors& inputs) {
    const Unseen unseen;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      detail::flatten_as_nccl_does(outputs[i]);
      for (Tensor& output : outputs[i]) output.copy_(inputs[i]);
    }
  }

  static void receive(Tensors& received, const Tensor& mine) {
    const Unseen unseen;
    for (Tensor& part : received)
      if (part.sizes() == mine.sizes())
        part.copy_(mine);
      else
        part.zero_();
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> pretended_ranks(int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size)
    throw UsageError(expectation("pretended_ranks", "a rank of 0 ... size - 1",
                                 std::to_string(rank) + " of " + std::to_string(size)));
  detail::give_ddp_a_timer();
  return c10::make_intrusive<PretendedRanks>(rank, size);
}

}  // namespace headroom::parallel
