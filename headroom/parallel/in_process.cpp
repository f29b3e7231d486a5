#include "headroom/parallel/in_process.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "headroom/base/error.h"
#include "headroom/base/first_failure.h"
#include "headroom/libtorch/streams.h"
#include "headroom/parallel/detail/done_work.h"

namespace headroom::parallel {
namespace {

using at::Tensor;
using detail::Tensors;

// A tensor that other ranks may read, and the stream in whose order they do.
struct Shared {
  Shared() = default;
  explicit Shared(const Tensor& of) : tensor(of) {
    if (of.is_cpu()) return;
    stream = libtorch::current_stream(of.device());
  }
  Tensor tensor;
  std::optional<c10::Stream> stream;
};

// Between devices, LibTorch copies in the current stream of the source, and makes the current
// stream of the target wait.
void take(const Tensor& into, const Tensor& theirs, const std::optional<c10::Stream>& stream) {
  if (!into.defined() || into.numel() == 0 || !theirs.defined()) return;
  std::optional<c10::StreamGuard> on;
  if (stream && stream->device() != into.device()) on.emplace(*stream);
  into.copy_(theirs, /*non_blocking=*/true);
}

// Where the ranks meet. If one is alone, the others are pretended: they never come, and have the
// same tensors.
class Hub {
 public:
  explicit Hub(int ranks, bool is_alone = false)
      : ranks_(ranks),
        is_alone_(is_alone),
        given(static_cast<std::size_t>(ranks)),
        sums(static_cast<std::size_t>(ranks)) {}

  // Returns when all ranks have called it.
  void meet() {
    if (is_alone_) return;
    std::unique_lock lock(mutex_);
    const std::uint64_t now = round_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != now; });
    }
  }

  // ---- From one rank to another ----

  struct Message {
    Shared shared;
    bool is_taken = false;
  };
  using Lane = std::tuple<int, int, int>;  // from, to, tag
  std::shared_ptr<Message> put(const Lane& lane, const Tensor& tensor) {
    const auto message = std::make_shared<Message>(Message{Shared(tensor), is_alone_});
    if (is_alone_) return message;
    const std::lock_guard lock(mutex_);
    lanes_[lane].push_back(message);
    changed_.notify_all();
    return message;
  }
  void wait_until_taken(const Message& message) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return message.is_taken; });
  }
  std::shared_ptr<Message> next(const Lane& lane) {
    if (is_alone_) return std::make_shared<Message>();
    std::unique_lock lock(mutex_);
    auto& waiting = lanes_[lane];
    changed_.wait(lock, [&] { return !waiting.empty(); });
    auto message = waiting.front();
    waiting.erase(waiting.begin());
    return message;
  }
  void taken(Message& message) {
    const std::lock_guard lock(mutex_);
    message.shared = {};
    message.is_taken = true;
    changed_.notify_all();
  }

 private:
  const int ranks_;
  const bool is_alone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  std::uint64_t round_ = 0;
  std::map<Lane, std::vector<std::shared_ptr<Message>>> lanes_;

 public:
  // By rank, each written by its own rank between two meetings.
  std::vector<Shared> given, sums;
};

class Sent final : public c10d::Work {
 public:
  Sent(std::shared_ptr<Hub> hub, std::shared_ptr<Hub::Message> message)
      : Work(-1, c10d::OpType::SEND), hub_(std::move(hub)), message_(std::move(message)) {}
  bool wait(std::chrono::milliseconds) override {
    hub_->wait_until_taken(*message_);
    return true;
  }
  void synchronize() override { static_cast<void>(wait(kNoTimeout)); }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Hub::Message> message_;
};

class InProcess final : public c10d::Backend {
 public:
  InProcess(std::shared_ptr<Hub> hub, int rank, int size)
      : Backend(rank, size), hub_(std::move(hub)) {}
  const std::string getBackendName() const override { return "in_process"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "in_process: only sums are implemented");
    for (const Tensor& tensor : tensors) sum(tensor);
    return detail::done(c10d::OpType::ALLREDUCE, tensors);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const auto from = static_cast<std::size_t>(options.rootRank);
    for (const Tensor& tensor : tensors) {
      FirstFailure failure;
      if (rank_ == options.rootRank) hub_->given[from] = Shared(tensor);
      hub_->meet();
      const at::NoGradGuard no_grad;
      const Shared& theirs = hub_->given[from];
      if (rank_ != options.rootRank)
        failure.then([&] { take(tensor, theirs.tensor, theirs.stream); });
      hub_->meet();
      if (rank_ == options.rootRank) hub_->given[from] = {};
      failure.rethrow();
    }
    return detail::done(c10d::OpType::BROADCAST, tensors);
  }

  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override {
    return c10::make_intrusive<Sent>(hub_, hub_->put({rank_, to, tag}, tensors.at(0)));
  }

  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override {
    const auto message = hub_->next({from, rank_, tag});
    const at::NoGradGuard no_grad;
    FirstFailure failure;
    failure.then([&] { take(tensors.at(0), message->shared.tensor, message->shared.stream); });
    hub_->taken(*message);
    failure.rethrow();
    return detail::done(c10d::OpType::RECV, tensors);
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    hub_->meet();
    return detail::done(c10d::OpType::BARRIER);
  }

 private:
  struct Scratch {
    Tensor on_host, on_device;
  };

  [[nodiscard]] std::int64_t piece_of(const Tensor& flat) const {
    return (flat.numel() + size_ - 1) / size_;
  }

  // The part of a flat tensor that a rank adds up for all.
  [[nodiscard]] Tensor part(const Tensor& flat, int rank) const {
    const std::int64_t each = piece_of(flat), from = std::min(flat.numel(), rank * each);
    return flat.narrow(0, from, std::min(each, flat.numel() - from));
  }

  // Scratch memory for a part of `flat`. All ranks keep the same, also one with a smaller part; for
  // some numbers, whatever the number of ranks.
  Tensor scratch(Scratch& all, const Tensor& flat) const {
    constexpr std::int64_t kLeast = 64;
    const std::int64_t bytes =
        std::max(kLeast, piece_of(flat) * static_cast<std::int64_t>(flat.element_size()));
    Tensor& kept = flat.is_cpu() ? all.on_host : all.on_device;
    if (!kept.defined() || kept.numel() < bytes) {
      kept.reset();
      kept = at::empty({bytes}, flat.options().dtype(at::kByte));
    }
    const auto mine = static_cast<std::int64_t>(part(flat, rank_).nbytes());
    return kept.narrow(0, 0, mine).view(flat.scalar_type());
  }

  void sum(const Tensor& tensor) {
    const at::NoGradGuard no_grad;
    const auto me = static_cast<std::size_t>(rank_);
    const Tensor mine = tensor.detach().view(-1);
    FirstFailure failure;
    hub_->given[me] = Shared(mine);
    hub_->meet();
    failure.then([&] { hub_->sums[me] = Shared(sum_of_part()); });
    hub_->meet();
    failure.then([&] {
      for (int rank = 0; rank < size_; ++rank) {
        const Shared& theirs = hub_->sums[static_cast<std::size_t>(rank)];
        take(part(mine, rank), theirs.tensor, theirs.stream);
      }
    });
    hub_->meet();  // all have issued their copies
    hub_->given[me] = hub_->sums[me] = {};
    failure.rethrow();
  }

  Tensor sum_of_part() {
    const Shared& own = hub_->given[static_cast<std::size_t>(rank_)];
    Tensor sum = scratch(sum_, own.tensor), theirs = scratch(theirs_, own.tensor);
    for (int rank = 0; rank < size_; ++rank) {
      const Shared& given = hub_->given[static_cast<std::size_t>(rank)];
      const Shared& of = given.tensor.defined() ? given : own;
      take(rank == 0 ? sum : theirs, part(of.tensor, rank_), of.stream);
      if (rank > 0) sum.add_(theirs);
    }
    return sum;
  }

  const std::shared_ptr<Hub> hub_;
  Scratch sum_, theirs_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> in_process_alone(int rank, int ranks) {
  return c10::make_intrusive<InProcess>(std::make_shared<Hub>(ranks, true), rank, ranks);
}

std::vector<c10::intrusive_ptr<c10d::Backend>> in_process(int ranks) {
  if (ranks < 1)
    throw UsageError(expectation("in_process", "one rank or more", std::to_string(ranks)));
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<c10::intrusive_ptr<c10d::Backend>> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(c10::make_intrusive<InProcess>(hub, rank, ranks));
  return all;
}

}  // namespace headroom::parallel
