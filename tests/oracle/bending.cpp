#include "tests/oracle/bending.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "headroom/cuda/loaded/asking_allocator.h"
#include "headroom/memory/victims.h"
#include "tests/oracle/dice.h"
#include "tests/oracle/excuses.h"
#include "tests/oracle/figures.h"
#include "tests/oracle/real_allocator.h"

namespace headroom::oracle {
namespace {

using allocator::Operation;
using allocator::Player;
using allocator::StreamId;
using Kind = Operation::Kind;

struct Counts {
  std::uint64_t operations = 0, refused = 0, served = 0;  // requests
  std::uint64_t at_floor = 0;                             // refused with nothing left to free
  std::uint64_t in_pools = 0;                             // refused in a private pool: not asked
  std::int64_t wanted = 0, freed = 0;                     // bytes of refused requests, and for them
  std::uint64_t callbacks = 0;  // that PyTorch's own registry would have asked for memory
  std::uint64_t from_driver = 0, to_driver = 0;  // segments
  char failure[1000] = {};
};

struct Block {
  std::int64_t size = 0;
  StreamId stream = 0;
};

std::uint64_t callbacks = 0;
class CountingCallback final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    ++callbacks;
    return false;
  }
};

class Bending {
 public:
  Bending(std::uint64_t seed, Counts& counts)
      : dice_(seed),
        counts_(counts),
        setup_(
            {.capacity = Bytes{dice_.between(64, 2048) << 20},
             .settings = dice_.pick({"", "", "expandable_segments:True", "max_split_size_mb:64"})}),
        player_(allocator::CachingAllocator(
            {.capacity = setup_.capacity, .settings = allocator::parse_settings(setup_.settings)})),
        real_(setup_) {
    now = this;
    c10::FreeCudaMemoryCallbacksRegistry()->Register(
        "count", [] { return std::unique_ptr<c10::FreeMemoryCallback>(new CountingCallback); });
    cuda::ask_before_refusing([](int, Bytes requested, std::uint32_t stream, int times,
                                 c10::Error&) { return now->frees(requested, stream, times); });
  }

  void play() {
    for (const auto end = dice_.between(100, 600);
         counts_.operations < static_cast<std::uint64_t>(end);)
      one();
    counts_.callbacks = callbacks;
    const allocator::Statistics statistics = real_.statistics();
    counts_.from_driver = static_cast<std::uint64_t>(statistics.num_device_alloc);
    counts_.to_driver = static_cast<std::uint64_t>(statistics.num_device_free);
  }

 private:
  static Bending* now;

  // ---- A stream ----

  void one() {
    switch (dice_.below(20)) {
      case 0:
        return same_on_both({.kind = Kind::empty_cache});
      case 1:
        return in_pool();
      case 2:
      case 3:
      case 4:
      case 5:
        return free_one(dice_.one_in(3) ? kept_ : movable_);
      case 6:
      case 7:
      case 8:
        return bring_back();
      default:
        return request({dice_.log_between(512, setup_.capacity.count / 8),
                        dice_.one_in(5) ? StreamId{1} : StreamId{0}});
    }
  }

  // What may not move never takes half of the card, and all that lives is at most twice the card.
  void request(const Block& block) {
    if (sum(kept_) + sum(movable_) + sum(away_) + block.size > 2 * setup_.capacity.count)
      return free_one(movable_.empty() ? kept_ : movable_);
    const bool stays = dice_.one_in(3) && sum(kept_) + block.size < setup_.capacity.count / 2;
    allocate(block, stays ? kept_ : movable_);
  }

  void free_one(std::map<std::uint32_t, Block>& of) {
    if (of.empty()) return;
    const auto which = std::next(of.begin(), static_cast<std::ptrdiff_t>(dice_.below(of.size())));
    same_on_both({.id = which->first, .kind = Kind::free});
    of.erase(which);
  }

  void bring_back() {
    if (away_.empty()) return;
    const Block block = away_.begin()->second;
    away_.erase(away_.begin());
    allocate(block, movable_);
  }

  void in_pool() {
    const std::uint64_t pool = ++pools_;
    same_on_both({.bytes = static_cast<std::int64_t>(pool), .kind = Kind::begin_pool});
    is_in_pool_ = true;
    std::map<std::uint32_t, Block> inside;
    for (auto requests = dice_.between(1, 4); requests > 0; --requests)
      allocate({dice_.log_between(512, setup_.capacity.count / 8), 0}, inside);
    is_in_pool_ = false;
    same_on_both({.bytes = static_cast<std::int64_t>(pool), .kind = Kind::end_pool});
    for (const auto& [id, block] : inside) same_on_both({.id = id, .kind = Kind::free});
    same_on_both({.bytes = static_cast<std::int64_t>(pool), .kind = Kind::release_pool});
  }

  // ---- A request, and what is freed for it ----

  void allocate(const Block& block, std::map<std::uint32_t, Block>& into) {
    const Operation request{
        .bytes = block.size, .id = next_id_++, .stream = block.stream, .kind = Kind::allocate};
    rounds_.clear();
    wanted_ = block.size;
    const bool real = real_.play(request);
    bool ours = player_.play(request);
    for (const auto& freed : rounds_) {
      expect(!ours, "the model served a request that the real allocator asked about");
      for (const std::uint32_t id : freed) player_.play({.id = id, .kind = Kind::free});
      ours = player_.play(request);
    }
    expect(real == ours, real ? "only the real one served it" : "only the model served it");
    if (real && !rounds_.empty()) ++counts_.served;
    if (!rounds_.empty()) ++counts_.refused;
    if (!real && is_in_pool_) ++counts_.in_pools;
    if (!real && !is_in_pool_) {
      expect(movable_.empty(), "a request failed although blocks could have been freed");
      counts_.refused += rounds_.empty();
      ++counts_.at_floor;
    }
    if (real) into[request.id] = block;
    compare(request);
  }

  // As Spill does: the fewest that make room, then all.
  bool frees(Bytes requested, StreamId stream, int times) {
    expect(!is_in_pool_, "a request of a private pool was asked about");
    if (movable_.empty()) return false;
    std::vector<std::uint32_t> ids;
    std::vector<memory::Movable> movable;
    for (const auto& [id, block] : movable_) {
      ids.push_back(id);
      movable.push_back({.address = real_.address_of(id),
                         .size = Bytes{block.size},
                         .needed = static_cast<double>(id)});
    }
    const std::int64_t reserved = real_.statistics().reserved_bytes.all.current;
    auto chosen =
        memory::victims({.segments = real_.snapshot(), .free = setup_.capacity - Bytes{reserved}},
                        movable, {.size = requested, .stream = stream});
    if (!chosen || chosen->empty() || times > 2) {
      chosen.emplace();
      for (std::size_t i = 0; i < ids.size(); ++i) chosen->push_back(i);
    }
    if (times == 1) counts_.wanted += wanted_;
    auto& freed = rounds_.emplace_back();
    for (const std::size_t one : *chosen) {
      const std::uint32_t id = ids[one];
      real_.play({.id = id, .kind = Kind::free});
      freed.push_back(id);
      away_[id] = movable_.at(id);
      counts_.freed += movable_.at(id).size;
      movable_.erase(id);
    }
    return true;
  }

  // ---- Both sides ----

  void same_on_both(const Operation& operation) {
    real_.play(operation);
    player_.play(operation);
    compare(operation);
  }

  void compare(const Operation& operation) {
    ++counts_.operations;
    Figures real = figures(real_.statistics());
    const Figures ours = figures(player_.card().statistics());
    excuses_.apply(operation, real, ours, fake_cuda::take_noticed());
    for (std::size_t i = 0; i < kFigures; ++i)
      expect(real[i] == ours[i], figure_name(i) + " differs: " + std::to_string(real[i]) +
                                     ", and the model has " + std::to_string(ours[i]));
  }

  static void expect(bool is_so, const std::string& otherwise) {
    if (!is_so) throw std::logic_error(otherwise);
  }
  static std::int64_t sum(const std::map<std::uint32_t, Block>& blocks) {
    std::int64_t all = 0;
    for (const auto& [id, block] : blocks) all += block.size;
    return all;
  }

  Dice dice_;
  Counts& counts_;
  Setup setup_;
  Player player_;
  RealAllocator real_;
  Excuses excuses_;
  std::map<std::uint32_t, Block> kept_, movable_, away_;  // by id
  std::vector<std::vector<std::uint32_t>> rounds_;        // freed for the request that runs
  std::int64_t wanted_ = 0;
  std::uint32_t next_id_ = 0;
  std::uint64_t pools_ = 0;
  bool is_in_pool_ = false;
};
Bending* Bending::now = nullptr;

// In a process of its own, as each RealAllocator.
void play(std::uint64_t seed, Counts& counts) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no child process");
  if (child == 0) {
    try {
      Bending(seed, counts).play();
    } catch (const std::exception& error) {
      std::snprintf(counts.failure, sizeof counts.failure, "%s", error.what());
    }
    ::_exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0)
    std::snprintf(counts.failure, sizeof counts.failure, "the process died (wait status %d)",
                  status);
}

}  // namespace

bool bend(std::uint64_t streams, std::uint64_t seed) {
  void* const memory =
      ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with a child");
  Counts all;
  std::uint64_t failed = 0;
  for (std::uint64_t i = 0; i < streams; ++i) {
    auto& counts = *new (memory) Counts;
    play(seed * 1'000'003 + i, counts);
    if (counts.failure[0] != '\0') {
      ++failed;
      std::printf("stream %llu, after %llu operations: %s\n", static_cast<unsigned long long>(i),
                  static_cast<unsigned long long>(counts.operations), counts.failure);
    }
    for (std::uint64_t Counts::*count :
         {&Counts::operations, &Counts::refused, &Counts::served, &Counts::at_floor,
          &Counts::in_pools, &Counts::callbacks, &Counts::from_driver, &Counts::to_driver})
      all.*count += counts.*count;
    all.wanted += counts.wanted;
    all.freed += counts.freed;
  }
  ::munmap(memory, sizeof(Counts));
  const auto n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf(
      "%llu streams, %llu operations: %llu requests refused, %llu served after something left, "
      "%llu with nothing left to free, %llu in private pools\n"
      "freed %.2f bytes for each byte of a refused request\n"
      "PyTorch's FreeMemoryCallback: called %llu times; segments from the driver %llu, back %llu\n",
      n(streams), n(all.operations), n(all.refused), n(all.served), n(all.at_floor),
      n(all.in_pools),
      static_cast<double>(all.freed) / static_cast<double>(std::max<std::int64_t>(all.wanted, 1)),
      n(all.callbacks), n(all.from_driver), n(all.to_driver));
  return failed == 0 && all.served > 0 && all.in_pools > 0;
}

}  // namespace headroom::oracle
