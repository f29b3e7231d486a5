// One stream of operations played to PyTorch's allocator and to the model, in a process of its own;
// after every operation everything is compared.
//
//   const Outcome outcome = duel([] { return make_stream(1, 17, ""); });
//   if (outcome.differs) std::puts(outcome.difference);
//
// Two streams at a time: start both Duels, then ask each for its outcome.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/oracle/streams.h"

namespace headroom::oracle {

// A difference put in on purpose, to show that it is found. Half-way through the stream, or at the
// first occasion after that.
struct Plant {
  enum class Kind {
    none,
    figure,
    verdict,
    text,
    address,
    snapshot_state,
    snapshot_size
  } kind = Kind::none;
  std::size_t figure = 0;  // which, with Kind::figure
};

// Lives in memory that parent and child share, so that it tells even of a child that died.
struct Outcome {
  std::uint64_t operations = 0;   // of the stream
  std::uint64_t compared = 0;     // so many, all figures of them but those counted next
  std::uint64_t partly = 0;       // of these: a figure of inactive_split was let pass (excuses.h)
  bool order_mattered = false;    // it might have been
  std::uint64_t after_fault = 0;  // left out: a fault of the original was met
  std::uint64_t requests = 0, refused = 0, retries = 0;
  bool differs = false;
  std::uint64_t at = 0;             // the operation it differs at, counted from 0
  char difference[4000] = {};       // which figure, the real value, ours
  const char* playing = "nothing";  // whose turn it is; a literal lies at one place in both
};

class Duel {
 public:
  // The child makes the stream itself.
  explicit Duel(const std::function<Stream()>& make, Plant plant = {});
  ~Duel();
  Duel(const Duel&) = delete;
  Duel& operator=(const Duel&) = delete;

  // Waits for the child. One that died by a signal differs.
  const Outcome& outcome();

 private:
  Outcome* shared_;
  pid_t child_;
};

inline Outcome duel(const std::function<Stream()>& make, Plant plant = {}) {
  return Duel(make, plant).outcome();
}

}  // namespace headroom::oracle
