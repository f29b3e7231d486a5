#include "headroom/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/cuda/load.h"
#include "headroom/data/detail/order.h"
#include "headroom/data/detail/random.h"
#include "headroom/data/detail/tensors.h"

namespace headroom::data {
namespace {

using at::Tensor;

[[noreturn]] void refuse_examples(const std::string& expected, const std::string& received) {
  throw UsageError(expectation("Loader", expected + " in all examples of a set", received));
}

Tensor batch_like(const Tensor& example, std::int64_t examples, bool pinned) {
  std::vector<std::int64_t> sizes{examples};
  sizes.insert(sizes.end(), example.sizes().begin(), example.sizes().end());
  return detail::empty(sizes, example.scalar_type(), pinned);
}

Tensors batch_like(const Tensors& example, std::int64_t examples, bool pinned) {
  Tensors batch;
  for (const Tensor& tensor : example) {
    if (!tensor.defined() || !tensor.device().is_cpu())
      refuse_examples("tensors on the CPU", "another one");
    batch.push_back(batch_like(tensor, examples, pinned));
  }
  return batch;
}

void copy_into(const Tensor& batch, std::int64_t place, const Tensor& example) {
  if (!example.defined() || example.sizes() != batch.sizes().slice(1) ||
      example.scalar_type() != batch.scalar_type() || !example.device().is_cpu())
    refuse_examples("tensors of one shape and type", "others");
  const Tensor from = example.contiguous();
  const std::size_t bytes = from.nbytes();
  if (bytes == 0) return;
  std::memcpy(static_cast<char*>(batch.data_ptr()) + static_cast<std::size_t>(place) * bytes,
              from.const_data_ptr(), bytes);
}

Bytes bytes_of(const Batch& batch) {
  Bytes bytes;
  for (const Tensor& tensor : batch.tensors)
    bytes += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
  return bytes;
}

const LoaderOptions& checked(const LoaderOptions& options, const Dataset* set) {
  const auto at_least = [](std::int64_t value, std::int64_t least, const char* what) {
    if (value < least)
      throw UsageError(expectation("Loader", "at least " + std::to_string(least) + " " + what,
                                   std::to_string(value)));
  };
  at_least(options.batch_size, 1, "example in a batch");
  at_least(options.workers, 0, "workers");
  at_least(options.ahead, 1, "batch ahead");
  at_least(set == nullptr ? 0 : set->size(), 1, "example in the set");
  if (options.drop_last) at_least(set->size(), options.batch_size, "examples, which fill a batch");
  return options;
}

}  // namespace

const char* to_string(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::validation:
      return "validation";
    case Split::test:
      return "test";
  }
  return "?";
}

// Decides the examples of each batch.
struct Loader::Recipe {
  std::shared_ptr<const Dataset> set;
  LoaderOptions options;
  std::int64_t size;
  bool pinned;

  // The same place, as the first one of the next epoch if this one has no more batch.
  [[nodiscard]] Position settled(Position place) const {
    const std::int64_t needed = options.drop_last ? options.batch_size : 1;
    return size - place.example >= needed ? place : Position{place.epoch + 1, 0};
  }
  [[nodiscard]] Position after(Position begin) const {
    return settled({begin.epoch, begin.example + options.batch_size});
  }
  [[nodiscard]] Tensors example(const detail::Order& order, Position place) const {
    const std::int64_t index = options.shuffle ? order[place.example] : place.example;
    return set->example(index, detail::mixed(options.seed, {place.epoch, index}));
  }
  // Breaks off, with an incomplete batch, if a stop is requested.
  [[nodiscard]] Batch make(Position begin, const std::stop_token& stop) const;
};

Batch Loader::Recipe::make(Position begin, const std::stop_token& stop) const {
  const detail::Order order(size, detail::mixed(options.seed, {begin.epoch}));
  Batch batch{.begin = begin,
              .examples = std::min(options.batch_size, size - begin.example),
              .ends_epoch = after(begin).epoch != begin.epoch};
  for (std::int64_t i = 0; i < batch.examples && !stop.stop_requested(); ++i) {
    const Tensors one = example(order, {begin.epoch, begin.example + i});
    if (i == 0) batch.tensors = batch_like(one, batch.examples, pinned);
    if (one.size() != batch.tensors.size())
      refuse_examples(std::to_string(batch.tensors.size()) + " tensors",
                      std::to_string(one.size()));
    for (std::size_t k = 0; k < one.size(); ++k) copy_into(batch.tensors[k], i, one[k]);
  }
  return batch;
}

// The threads, and the batches that they make, in the order in which next() returns them.
class Loader::Crew {
 public:
  Crew(const Recipe& recipe, Position begin) : recipe_(recipe), begin_(begin) {
    for (int i = 0; i < recipe.options.workers; ++i)
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  // Asks all to stop before it waits for the first.
  ~Crew() {
    for (std::jthread& worker : workers_) worker.request_stop();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  Batch next() {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return !slots_.empty() && slots_.front()->done; });
    const std::shared_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    room_.notify_all();
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->batch);
  }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    bool done = false;
  };

  // Until one batch has been made its size is unknown, and no second one is begun.
  [[nodiscard]] bool has_room() const {
    if (slots_.empty()) return true;
    const auto with_one_more = static_cast<std::int64_t>(slots_.size()) + 1;
    return largest_.count > 0 && with_one_more <= recipe_.options.ahead &&
           largest_ * with_one_more <= recipe_.options.most_bytes;
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (room_.wait(lock, stop, [&] { return has_room(); }) && !stop.stop_requested()) {
      const Position begin = std::exchange(begin_, recipe_.after(begin_));
      const auto slot = slots_.emplace_back(std::make_shared<Slot>());
      lock.unlock();
      try {
        slot->batch = recipe_.make(begin, stop);
      } catch (...) {
        slot->error = std::current_exception();
      }
      lock.lock();
      slot->done = true;
      largest_ = std::max({largest_, bytes_of(slot->batch), Bytes{1}});
      made_.notify_one();
      room_.notify_all();
    }
  }

  const Recipe& recipe_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable made_;
  std::condition_variable_any room_;
  Position begin_;  // of the next batch that no worker has begun
  std::deque<std::shared_ptr<Slot>> slots_;
  Bytes largest_;
  std::vector<std::jthread> workers_;  // last: they end before the members they use
};

Loader::Loader(std::shared_ptr<const Dataset> set, const LoaderOptions& options) {
  checked(options, set.get());
  const std::int64_t size = set->size();
  const bool pinned = options.pinned && cuda_functions().device_count() > 0;
  recipe_ = std::make_unique<Recipe>(Recipe{std::move(set), options, size, pinned});
}

Loader::~Loader() = default;

Batch Loader::next() {
  Batch batch;
  if (recipe_->options.workers == 0) {
    batch = recipe_->make(position_, {});
  } else {
    if (!crew_) crew_ = std::make_unique<Crew>(*recipe_, position_);
    try {
      batch = crew_->next();
    } catch (...) {
      crew_.reset();  // the next one begins at this batch
      throw;
    }
  }
  position_ = recipe_->after(batch.begin);
  return batch;
}

Position Loader::position() const {
  return position_;
}

void Loader::set_position(const Position& position) {
  if (position.epoch < 0 || position.example < 0 || position.example > recipe_->size)
    throw UsageError(expectation("Loader",
                                 "a place among " + std::to_string(recipe_->size) + " examples",
                                 "example " + std::to_string(position.example) + " of epoch " +
                                     std::to_string(position.epoch),
                                 "the set that the position was saved with"));
  crew_.reset();
  position_ = recipe_->settled(position);
}

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t batch = recipe_->options.batch_size;
  return (recipe_->size + (recipe_->options.drop_last ? 0 : batch - 1)) / batch;
}

const Dataset& Loader::set() const {
  return *recipe_->set;
}

const LoaderOptions& Loader::options() const {
  return recipe_->options;
}

}  // namespace headroom::data
