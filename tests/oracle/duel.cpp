#include "tests/oracle/duel.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <unordered_map>

#include "headroom/base/error.h"
#include "tests/oracle/excuses.h"

namespace headroom::oracle {
namespace {

using allocator::BlockInfo;
using allocator::CachingAllocator;
using allocator::Operation;
using allocator::Player;
using allocator::SegmentInfo;

CachingAllocator make_card(const Setup& setup) {
  CachingAllocator card({.capacity = setup.capacity,
                         .settings = allocator::parse_settings(setup.settings),
                         .events = setup.events,
                         .addresses = setup.addresses});
  if (setup.fraction) card.set_memory_fraction(*setup.fraction);
  return card;
}

// Thrown when both differ.
struct Difference {
  std::string what;
};

void expect_equal(const std::string& figure, const std::string& real, const std::string& ours) {
  if (real != ours) throw Difference{figure + "\n  real: " + real + "\n  ours: " + ours};
}
template <typename Number>
void expect_equal(const std::string& figure, Number real, Number ours) {
  if (real != ours) expect_equal(figure, std::to_string(real), std::to_string(ours));
}

// Addresses agree when each piece of memory lies at one place on either side: the distance between
// the two is the same for all addresses in it.
class Places {
 public:
  // The address as the model would give it.
  std::uint64_t translate(std::uint64_t real, std::uint64_t ours) {
    const auto piece = fake_cuda::piece_at(real);
    if (!piece) throw Difference{"the real address is in no piece of memory"};
    return real + distances_.try_emplace(piece->birth, ours - real).first->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> distances_;  // by birth; wraps around
};

class Match {
 public:
  Match(const Stream& stream, Plant plant, Outcome& outcome)
      : stream_(stream),
        plant_(plant),
        outcome_(outcome),
        player_(make_card(stream.setup), stream.content.settings_texts),
        real_(stream.setup, stream.content.settings_texts) {}

  void play() {
    const auto& operations = stream_.content.operations;
    outcome_.operations = operations.size();
    for (outcome_.at = 0; outcome_.at < outcome_.operations; ++outcome_.at) {
      if (outcome_.at == operations.size() / 3) go_on_with_a_copy();
      const Next next = play(operations[outcome_.at]);
      if (next == Next::original_at_fault) break;
      if (next == Next::end) outcome_.operations = outcome_.at;
      outcome_.compared += next == Next::go_on;
    }
    outcome_.after_fault = outcome_.operations - outcome_.compared;
    if (outcome_.after_fault == 0) compare_snapshots();
    outcome_.retries = static_cast<std::uint64_t>(player_.card().statistics().num_alloc_retries);
  }

 private:
  // A copy of a card is a card of its own: from here on the stream is played to one.
  void go_on_with_a_copy() {
    Player copy(player_);
    player_ = std::move(copy);
  }

  enum class Next { go_on, original_at_fault, end };
  Next play(const Operation& operation);
  Next begin_pool(const Operation& operation);
  void compare_refusal(bool real, bool ours);
  void compare_figures(const Operation& operation);
  void compare_address(std::uint32_t id);
  void compare_snapshots();
  void compare_segment(const SegmentInfo& real, const SegmentInfo& ours);
  void compare_block(const BlockInfo& real, const BlockInfo& ours);

  bool plants(Plant::Kind kind) {
    return plant_.kind == kind && outcome_.at >= outcome_.operations / 2;
  }
  void turn(const char* whose) { outcome_.playing = whose; }

  const Stream& stream_;
  Plant plant_;
  Outcome& outcome_;
  Player player_;
  RealAllocator real_;
  Excuses excuses_;
  Places places_;
};

// The number of a pool that was released and still holds something is refused by both, and only
// they know how long. What the stream would do in that pool is no longer legal, so it ends here.
Match::Next Match::begin_pool(const Operation& operation) {
  const auto refuses = [&](auto& side) {
    try {
      side.play(operation);
      return false;
    } catch (const UsageError&) {
      return true;
    }
  };
  turn("ours");
  const bool ours = refuses(player_);
  turn("real");
  const bool real = refuses(real_);
  const auto word = [](bool refused) { return std::string(refused ? "refused" : "begun"); };
  expect_equal("begin_pool", word(real), word(ours));
  if (!real) compare_figures(operation);
  return real ? Next::end : Next::go_on;
}

Match::Next Match::play(const Operation& operation) {
  if (operation.kind == Operation::Kind::begin_pool) return begin_pool(operation);
  turn("ours");
  bool ours = player_.play(operation);
  if (player_.card().met_fault_of_original()) return Next::original_at_fault;
  turn("real");
  const bool real = real_.play(operation);
  const bool allocates = operation.kind == Operation::Kind::allocate && operation.bytes > 0;
  if (allocates) {
    ++outcome_.requests;
    outcome_.refused += !real;
    if (plants(Plant::Kind::verdict)) ours = !ours;
    compare_refusal(real, ours);
    if (real) compare_address(operation.id);
  }
  compare_figures(operation);
  return Next::go_on;
}

void Match::compare_refusal(bool real, bool ours) {
  const auto word = [](bool granted) { return std::string(granted ? "granted" : "refused"); };
  expect_equal("the request", word(real), word(ours));
  if (real) return;
  std::string text = to_string(player_.card().last_out_of_memory());
  if (plants(Plant::Kind::text)) text += ".";
  expect_equal("the text of the refusal", real_.out_of_memory_text(), text);
}

void Match::compare_figures(const Operation& operation) {
  Figures real = figures(real_.statistics());
  Figures ours = figures(player_.card().statistics());
  if (plants(Plant::Kind::figure)) ++ours[plant_.figure];
  excuses_.apply(operation, real, ours, fake_cuda::take_noticed());
  outcome_.partly += excuses_.was_used();
  outcome_.order_mattered = excuses_.order_mattered();
  if (real == ours) return;
  std::string all;
  for (std::size_t i = 0; i < kFigures; ++i)
    if (real[i] != ours[i])
      all += (all.empty() ? "" : "\n") + figure_name(i) + "\n  real: " + std::to_string(real[i]) +
             "\n  ours: " + std::to_string(ours[i]);
  throw Difference{all};
}

void Match::compare_address(std::uint32_t id) {
  std::uint64_t ours = player_.card().block(player_.block_of(id)).address;
  if (plants(Plant::Kind::address)) ours += 512;
  expect_equal("the address of the block", places_.translate(real_.address_of(id), ours), ours);
}

void Match::compare_snapshots() {
  const std::vector<SegmentInfo> real = real_.snapshot();
  std::vector<SegmentInfo> ours = player_.card().snapshot();
  if (plant_.kind == Plant::Kind::snapshot_state && !ours.empty())
    ours.back().blocks.back().state = BlockInfo::State::awaiting_free;
  if (plant_.kind == Plant::Kind::snapshot_size && !ours.empty())
    ours.back().blocks.back().size += Bytes{512};
  expect_equal("snapshot: segments", real.size(), ours.size());
  for (std::size_t i = 0; i < real.size(); ++i) compare_segment(real[i], ours[i]);
}

void Match::compare_segment(const SegmentInfo& real, const SegmentInfo& ours) {
  expect_equal("snapshot: segment.address", places_.translate(real.address, ours.address),
               ours.address);
  expect_equal("snapshot: segment.size", real.size.count, ours.size.count);
  expect_equal("snapshot: segment.stream", real.stream, ours.stream);
  expect_equal("snapshot: segment.is_large", real.is_large, ours.is_large);
  expect_equal("snapshot: segment.is_expandable", real.is_expandable, ours.is_expandable);
  expect_equal("snapshot: segment.pool", real.pool, ours.pool);
  expect_equal("snapshot: segment.blocks", real.blocks.size(), ours.blocks.size());
  for (std::size_t i = 0; i < real.blocks.size(); ++i)
    compare_block(real.blocks[i], ours.blocks[i]);
}

void Match::compare_block(const BlockInfo& real, const BlockInfo& ours) {
  expect_equal("snapshot: block.address", places_.translate(real.address, ours.address),
               ours.address);
  expect_equal("snapshot: block.size", real.size.count, ours.size.count);
  expect_equal("snapshot: block.stream", real.stream, ours.stream);
  expect_equal("snapshot: block.state", static_cast<int>(real.state), static_cast<int>(ours.state));
  if (real.state == BlockInfo::State::free && excuses_.order_mattered()) return;
  expect_equal("snapshot: block.requested", real.requested.count, ours.requested.count);
}

void note(Outcome& outcome, const std::string& what) {
  outcome.differs = true;
  std::snprintf(outcome.difference, sizeof outcome.difference, "%s", what.c_str());
}

void play_in_child(const std::function<Stream()>& make, Plant plant, Outcome& outcome) {
  try {
    const Stream stream = make();
    Match(stream, plant, outcome).play();
  } catch (const Difference& difference) {
    note(outcome, difference.what);
  } catch (const std::exception& error) {
    note(outcome, std::string(outcome.playing) + " threw\n  " + error.what());
  }
}

void* shared_memory(std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with a child");
  return memory;
}

}  // namespace

Duel::Duel(const std::function<Stream()>& make, Plant plant)
    : shared_(new (shared_memory(sizeof(Outcome))) Outcome), child_(::fork()) {
  if (child_ < 0) throw std::runtime_error("no child process");
  if (child_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // never outlives who waits for it
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  play_in_child(make, plant, *shared_);
  ::_exit(0);
}

Duel::~Duel() {
  outcome();
  ::munmap(shared_, sizeof(Outcome));
}

const Outcome& Duel::outcome() {
  if (child_ == 0) return *shared_;
  int status = 0;
  if (::waitpid(child_, &status, 0) != child_) throw std::runtime_error("the child is lost");
  child_ = 0;
  if (status != 0)
    note(*shared_, "the process died (wait status " + std::to_string(status) + ") while playing " +
                       shared_->playing);
  return *shared_;
}

}  // namespace headroom::oracle
