// Batches of a dataset, made ahead of time by threads, without end: after the last batch of an
// epoch comes the first of the next.
//
//   data::Loader loader(set, {.batch_size = 32, .shuffle = true, .seed = 7, .workers = 2});
//   loader.set_position(saved);                 // goes on where another loader was
//   const data::Batch batch = loader.next();    // batch.tensors[0] is [32, ...]
//   save(loader.position());                    // the first example that next() has not returned
//
// The batches depend on the set, the seed, the batch size and the position alone: not on the number
// of threads, and not on which of them is faster. Each example gets a seed of its own, made from
// the loader's seed, the epoch and the index, so that its random changes come again too.
//
// The threads start with the first next() and end with the loader. An exception of
// Dataset::example comes out of the next() that would have returned its batch; the position stays,
// and another next() tries the same batch again.
//
// Host memory: at most `ahead` batches and at most `most_bytes` wait or are being made, and the one
// that next() returned last. One batch is always made, however large.
//
// Threads: one loader, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headroom/base/bytes.h"
#include "headroom/data/dataset.h"

namespace headroom::data {

struct LoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;    // another order in each epoch
  std::uint64_t seed = 0;  // of the order, and of the random parts of examples
  int workers = 2;         // threads; 0: next() makes the batch itself, in its own thread
  int ahead = 4;           // batches that are ready or being made, with workers
  Bytes most_bytes{std::int64_t{1} << 30};  // of those batches
  bool drop_last = false;                   // leaves out an epoch's last batch if it is smaller
  // Page-locked memory, from which copies to a GPU are faster. Without a CUDA device: plain memory.
  bool pinned = false;
};

// A place in the endless row of examples.
struct Position {
  std::int64_t epoch = 0;    // from 0
  std::int64_t example = 0;  // in the epoch's order, from 0

  bool operator==(const Position&) const = default;
};

struct Batch {
  Tensors tensors;  // the examples' tensors, stacked: the first dimension counts examples
  Position begin;   // of the first example
  std::int64_t examples = 0;
  bool ends_epoch = false;  // the next batch belongs to the next epoch
};

class Loader {
 public:
  // Throws UsageError for an empty set, and for options that make no sense.
  Loader(std::shared_ptr<const Dataset> set, const LoaderOptions& options);
  ~Loader();  // ends the threads
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch. Rethrows an exception of Dataset::example, and throws UsageError for
  // examples whose tensors differ in number, shape or type.
  [[nodiscard]] Batch next();

  // The first example of the next batch, whatever the threads have made already.
  [[nodiscard]] Position position() const;
  // next() continues from here. Throws UsageError for a place that the set does not have.
  void set_position(const Position& position);

  [[nodiscard]] std::int64_t batches_per_epoch() const;
  [[nodiscard]] const Dataset& set() const;
  [[nodiscard]] const LoaderOptions& options() const;

 private:
  class Crew;
  struct Recipe;
  std::unique_ptr<const Recipe> recipe_;
  Position position_;
  std::unique_ptr<Crew> crew_;  // null until next(), and after an error
};

}  // namespace headroom::data
