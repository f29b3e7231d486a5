#include "headroom/parallel/sim_backend.h"

#include <ATen/ATen.h>

#include "headroom/parallel/detail/exchange.h"
#include "headroom/parallel/detail/timer.h"

namespace headroom::parallel {
namespace {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;
using detail::bring_back;
using detail::cross;
using detail::done;
using detail::forget;
using detail::on_host;
using detail::parts;
using detail::room_on_host;
using detail::Tensors;
using detail::WorkPtr;

// Fills two gaps of gloo: it sums types of reduced precision in float, and makes a mean from a sum.
class Reduction {
 public:
  Reduction(const ReduceOp& op, int ranks) : is_mean_(op == ReduceOp::AVG), ranks_(ranks) {
    TORCH_CHECK_NOT_IMPLEMENTED(static_cast<ReduceOp::RedOpType>(op) != ReduceOp::PREMUL_SUM,
                                "[sim] expected a reduction that gloo knows, received PREMUL_SUM");
    op_ = is_mean_ ? ReduceOp(ReduceOp::SUM) : op;
  }
  [[nodiscard]] const ReduceOp& op() const { return op_; }
  [[nodiscard]] Tensors inputs(const Tensors& tensors) const {
    Tensors ready = on_host(tensors);
    for (Tensor& tensor : ready)
      if (c10::isReducedFloatingType(tensor.scalar_type())) tensor = tensor.to(at::kFloat);
    return ready;
  }
  void bring(Tensors& sums, const Tensors& to) const {
    if (is_mean_)
      for (Tensor& sum : sums)
        sum = sum.is_floating_point() ? sum.div_(ranks_) : sum.div_(ranks_, "floor");
    bring_back(sums, to);
  }

 private:
  bool is_mean_;
  int ranks_;
  ReduceOp op_;
};

class SimBackend final : public c10d::Backend {
 public:
  explicit SimBackend(c10::intrusive_ptr<c10d::Backend> host)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}
  const std::string getBackendName() const override { return "sim"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    if (cross(tensors)) {
      Tensors values = on_host(tensors);
      host_->broadcast(values, options)->wait();
      bring_back(values, tensors);
    } else {
      forget(tensors);
    }
    return done(OpType::BROADCAST, tensors);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    reduce_all(tensors, options);
    return done(OpType::ALLREDUCE, tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    for (const Tensor& tensor : tensors) reduce_all({tensor}, options);
    return done(OpType::ALLREDUCE_COALESCED, tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    if (cross(tensors)) {
      const Reduction reduction(options.reduceOp, size_);
      Tensors values = reduction.inputs(tensors);
      c10d::ReduceOptions for_host = options;
      for_host.reduceOp = reduction.op();
      host_->reduce(values, for_host)->wait();
      if (options.rootRank == rank_) reduction.bring(values, tensors);
    } else {
      forget(tensors);
    }
    return done(OpType::REDUCE, tensors);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    for (const Tensors& list : outputs) detail::flatten_as_nccl_does(list);
    gather_all(outputs, inputs, options);
    return done(OpType::ALLGATHER, outputs);
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    gather_whole(output, input, options);
    return done(OpType::_ALLGATHER_BASE, Tensors{output});
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Tensors> of_tensor(1);
      for (const Tensors& of_rank : outputs) of_tensor[0].push_back(of_rank[i]);
      Tensors input{inputs[i]};
      gather_all(of_tensor, input, options);
    }
    return done(OpType::COALESCED, outputs);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    for (std::size_t i = 0; i < outputs.size(); ++i) gather_whole(outputs[i], inputs[i], options);
    return done(OpType::COALESCED, outputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    if (cross(inputs)) {
      std::vector<Tensors> gathered = room_on_host(outputs);
      Tensors given = on_host(inputs);
      host_->gather(gathered, given, options)->wait();
      bring_back(gathered, outputs);
    } else {
      forget(outputs);
    }
    return done(OpType::GATHER, outputs);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    if (cross(outputs)) {
      Tensors received = room_on_host(outputs);
      std::vector<Tensors> given = on_host(inputs);
      host_->scatter(received, given, options)->wait();
      bring_back(received, outputs);
    } else {
      forget(outputs);
    }
    return done(OpType::SCATTER, outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      detail::flatten_as_nccl_does(inputs[i]);
      reduce_scattered(outputs[i], inputs[i], options);
    }
    return done(OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    reduce_scattered(output, parts(input, size_), options);
    return done(OpType::_REDUCE_SCATTER_BASE, Tensors{output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    for (std::size_t i = 0; i < outputs.size(); ++i)
      reduce_scattered(outputs[i], parts(inputs[i], size_), options);
    return done(OpType::COALESCED, outputs);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override {
    if (cross(Tensors{input, output})) {
      Tensor received = room_on_host(output);
      Tensor given = on_host(input);
      host_->alltoall_base(received, given, output_sizes, input_sizes, options)->wait();
      bring_back(received, output);
    } else {
      forget(Tensors{output});
    }
    return done(OpType::ALLTOALL_BASE, Tensors{output});
  }
  // Gloo has only the form with one tensor, alltoall_base.
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    if (cross(inputs) || cross(outputs)) {
      std::vector<std::int64_t> output_sizes;
      std::vector<std::int64_t> input_sizes;
      Tensor given = laid_out(on_host(inputs), input_sizes);
      Tensor received = laid_out(room_on_host(outputs), output_sizes);
      std::vector<std::int64_t> taken = output_sizes;  // gloo consumes it
      host_->alltoall_base(received, given, taken, input_sizes, options)->wait();
      const Tensors arrived = received.split_with_sizes(output_sizes);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        bring_back(arrived[i].view(outputs[i].sizes()), outputs[i]);
    } else {
      forget(outputs);
    }
    return done(OpType::ALLTOALL, outputs);
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    if (!cross(tensors)) return done(OpType::SEND, tensors);
    auto values = std::make_shared<Tensors>(on_host(tensors));
    return detail::under_way(OpType::SEND, host_->send(*values, to, tag), tensors, [values] {});
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return receive(tensors, OpType::RECV,
                   [&](Tensors& values) { return host_->recv(values, from, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return receive(tensors, OpType::RECVANYSOURCE,
                   [&](Tensors& values) { return host_->recvAnysource(values, tag); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    c10d::BarrierOptions for_host = options;
    for_host.device_ids.clear();
    for_host.device.reset();
    return host_->barrier(for_host);
  }

  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  std::uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }
  void abort() override { host_->abort(); }
  void shutdown() override { host_->shutdown(); }

 private:
  void reduce_all(const Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (!cross(tensors)) return forget(tensors);
    const Reduction reduction(options.reduceOp, size_);
    Tensors values = reduction.inputs(tensors);
    c10d::AllreduceOptions for_host = options;
    for_host.reduceOp = reduction.op();
    host_->allreduce(values, for_host)->wait();
    reduction.bring(values, tensors);
  }

  void gather_all(std::vector<Tensors>& outputs, Tensors& inputs,
                  const c10d::AllgatherOptions& options) {
    if (!cross(inputs) && !cross(outputs)) return forget(outputs);
    std::vector<Tensors> gathered = room_on_host(outputs);
    Tensors given = on_host(inputs);
    host_->allgather(gathered, given, options)->wait();
    bring_back(gathered, outputs);
  }

  void gather_whole(Tensor& output, const Tensor& input, const c10d::AllgatherOptions& options) {
    if (!detail::crosses(input)) return forget(Tensors{output});
    Tensor gathered = room_on_host(output);
    Tensor given = on_host(input);
    host_->_allgather_base(gathered, given, options)->wait();
    bring_back(gathered, output);
  }

  // Every rank reduces all parts and keeps its own, because gloo's reduce_scatter needs equal
  // parts.
  void reduce_scattered(Tensor& output, const Tensors& inputs,
                        const c10d::ReduceScatterOptions& options) {
    if (!detail::crosses(output)) return forget(Tensors{output});
    const Reduction reduction(options.reduceOp, size_);
    const Tensors given = reduction.inputs(inputs);
    c10d::AllreduceOptions for_host;
    for_host.reduceOp = reduction.op();
    for_host.timeout = options.timeout;
    for (std::size_t i = 0; i < given.size(); ++i) {
      Tensors sum{given[i]};
      host_->allreduce(sum, for_host)->wait();
      if (static_cast<int>(i) != rank_) continue;
      sum[0] = sum[0].view(output.sizes());
      reduction.bring(sum, {output});
    }
  }

  template <class Receive>
  WorkPtr receive(Tensors& tensors, OpType type, Receive start) {
    if (!cross(tensors)) {
      forget(tensors);
      return done(type, tensors);
    }
    auto values = std::make_shared<Tensors>(room_on_host(tensors));
    return detail::under_way(type, start(*values), tensors,
                             [values, tensors] { bring_back(*values, tensors); });
  }

  static Tensor laid_out(const Tensors& list, std::vector<std::int64_t>& sizes) {
    Tensors flat;
    for (const Tensor& tensor : list) {
      flat.push_back(tensor.view(-1));
      sizes.push_back(tensor.numel());
    }
    return at::cat(flat);
  }

  c10::intrusive_ptr<c10d::Backend> host_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> sim_backend(c10::intrusive_ptr<c10d::Backend> host) {
  detail::give_ddp_a_timer();
  return c10::make_intrusive<SimBackend>(std::move(host));
}

}  // namespace headroom::parallel
