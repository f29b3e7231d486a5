// Many processes take leases of one card (or several at once of eight), and a fifth of them is
// killed at random points; an auditor looks all the time whether anything is promised twice.
//
//   lease_stress [--processes 64] [--rounds 1000] [--cards 1] [--kill 20] [--seed 1] [--naive]
//
// Prints one line of JSON. Exit 0: nothing was promised twice, no lease of the dead was left, and
// all came to their end; 1: not so. `--naive` decides by min(not reserved, free) instead: the
// auditor has to catch it.
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/lease/ledger.h"
#include "tests/lease/fixtures/shared_card.h"
#include "tests/lease/stress_worker.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;

class Stress {
 public:
  explicit Stress(const World& world)
      : world_(world),
        directory_(Directory::at(world.folder)),
        random_(world.settings.seed),
        left_(static_cast<std::size_t>(world.settings.processes), world.settings.rounds) {
    // A stranger's share: memory that no lease has.
    world_.cards->slots[0].used[0] = (4_GiB).count;
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  int run() {
    const auto begin = Clock::now();
    for (int i = 0; i < world_.settings.processes; ++i) start(i);
    while (!running_.empty() || !draining_.empty()) {
      reap();
      give_back();
      if (world_.settings.kill_percent > 0 && random_() % 50 == 0) kill_somebody();
      audit();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    while (::waitpid(-1, nullptr, 0) > 0) {
    }  // children of the dead
    const Directory::Turn turn = directory_.take_turn();
    (void)turn.remove_dead(turn.contents());
    const Contents end = turn.contents();
    const std::size_t stale = end.leases.size() + end.waiting.size() + end.dead.size();
    return print(Seconds(Clock::now() - begin), stale);
  }

 private:
  struct Process {
    int number = 0, slot = 0;
    long long rounds_before = 0;
  };
  struct Draining {
    int slot = 0;
    Clock::time_point until;
  };

  void start(int number) {
    auto& cards = *world_.cards;
    int slot = 1;
    while (cards.slots[static_cast<std::size_t>(slot)].pid != 0) ++slot;
    Slot& mine = cards.slots[static_cast<std::size_t>(slot)];
    mine.pid = -1;  // taken
    std::int64_t& left = left_[static_cast<std::size_t>(number)];
    const unsigned seed = static_cast<unsigned>(random_());
    // Each process does a few rounds and is then forked anew for the remaining rounds.
    const pid_t pid = ::fork();
    if (pid == 0) {
      Worker worker(world_, mine, seed);
      for (std::int64_t i = 0; i < left; ++i) {
        done_[static_cast<std::size_t>(number)] += 1;
        worker.round();
      }
      ::_exit(0);
    }
    running_[pid] = {.number = number, .slot = slot};
  }

  void reap() {
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0;
         pid = ::waitpid(-1, &status, WNOHANG)) {
      const auto found = running_.find(pid);
      if (found == running_.end()) continue;  // a child of one that was killed
      const Process process = found->second;
      running_.erase(found);
      const auto number = static_cast<std::size_t>(process.number);
      left_[number] = world_.settings.rounds - done_[number];
      killed_ += WIFSIGNALED(status) ? 1 : 0;
      Slot& slot = world_.cards->slots[static_cast<std::size_t>(process.slot)];
      if (slot.lease != 0 && !slot.has_child) gone_.insert(slot.lease);
      const auto drains = std::chrono::microseconds(random_() % 10'000);
      draining_.push_back({process.slot, Clock::now() + drains});
      if (left_[number] > 0) start(process.number);
    }
  }

  // Memory of dead processes returns after a while.
  void give_back() {
    std::erase_if(draining_, [&](const Draining& entry) {
      if (Clock::now() < entry.until) return false;
      Slot& slot = world_.cards->slots[static_cast<std::size_t>(entry.slot)];
      for (auto& used : slot.used) used = 0;
      slot.lease = 0;
      slot.pid = 0;
      return true;
    });
  }

  void kill_somebody() {
    if (running_.empty()) return;
    auto victim = running_.begin();
    std::advance(victim, static_cast<long>(random_() % running_.size()));
    ::kill(victim->first, SIGKILL);
  }

  // In a turn, so that no lease is given meanwhile.
  void audit() {
    const Directory::Turn turn = directory_.take_turn(Seconds(60));
    const Contents now = turn.contents();
    ++audits_;
    std::set<std::uint32_t> alive;
    for (const Claim& lease : now.leases) alive.insert(number_of(lease.id));
    for (int card = 0; card < world_.settings.cards; ++card) audit_card(card, now, alive);
    for (const std::uint32_t lease : gone_) late_ += alive.contains(lease) ? 1 : 0;
    gone_.clear();
  }

  void audit_card(int card, const Contents& now, const std::set<std::uint32_t>& alive) {
    const auto at = static_cast<std::size_t>(card);
    std::map<std::uint32_t, std::int64_t> used;
    std::int64_t sum = 0;
    for (const Slot& slot : world_.cards->slots) {
      const std::uint32_t lease = slot.lease;
      if (lease != 0 && alive.contains(lease))
        used[lease] += slot.used[at];
      else
        sum += slot.used[at];  // a stranger's, or a dead one's
    }
    for (const Claim& lease : now.leases)
      sum += std::max(reserved_on(lease, uuid_of(card)).count, used[number_of(lease.id)]);
    fullest_ = std::max(fullest_, sum);
    if (sum > (world_.cards->total - kMargin).count) ++violations_;
  }

  int print(Seconds took, std::size_t stale) const {
    const Counts& counts = *world_.counts;
    const bool good = violations_ == 0 && late_ == 0 && stale == 0 && counts.errors == 0 &&
                      (world_.settings.cards == 1 || counts.timed_out == 0);
    std::printf(
        "{\"processes\":%d,\"rounds\":%lld,\"cards\":%d,\"leases\":%lld,\"refused\":%lld,"
        "\"timed_out\":%lld,\"killed\":%lld,\"audits\":%lld,\"violations\":%lld,\"stale\":%zu,"
        "\"late\":%lld,\"errors\":%lld,\"fullest_bytes\":%lld,\"limit_bytes\":%lld,"
        "\"took_s\":%.1f}\n",
        world_.settings.processes, counts.rounds.load(), world_.settings.cards,
        counts.leases.load(), counts.refused.load(), counts.timed_out.load(), killed_, audits_,
        violations_, stale, late_, counts.errors.load(), static_cast<long long>(fullest_),
        static_cast<long long>((world_.cards->total - kMargin).count), took.count());
    return good ? 0 : 1;
  }

  const World& world_;
  const Directory directory_;
  std::minstd_rand random_;
  std::vector<std::int64_t> left_;
  std::atomic<std::int64_t>* done_ = shared_counters();
  std::map<pid_t, Process> running_;
  std::vector<Draining> draining_;
  std::set<std::uint32_t> gone_;  // whose holders were collected since the last audit
  long long killed_ = 0, audits_ = 0, late_ = 0, violations_ = 0;
  std::int64_t fullest_ = 0;

  static std::atomic<std::int64_t>* shared_counters() {
    void* memory = ::mmap(nullptr, kMostSlots * sizeof(std::atomic<std::int64_t>),
                          PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return static_cast<std::atomic<std::int64_t>*>(memory);
  }
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--naive") {
      settings.naive = true;
      continue;
    }
    const long long value = to_integer(i + 1 < argc ? argv[++i] : "").value_or(-1);
    const std::map<std::string, int*> known{{"--processes", &settings.processes},
                                            {"--rounds", &settings.rounds},
                                            {"--cards", &settings.cards},
                                            {"--kill", &settings.kill_percent}};
    const auto found = known.find(option);
    if (value < 0 || (found == known.end() && option != "--seed"))
      throw UsageError("lease_stress: unknown option or no number: " + option);
    if (found != known.end()) {
      *found->second = static_cast<int>(value);
    } else {
      settings.seed = static_cast<unsigned>(value);
    }
  }
  return settings;
}

int run(int argc, char** argv) {
  const headroom::testing::TemporaryFolder folder;
  World world{.settings = parse(argc, argv), .folder = folder.path() / "leases"};
  world.cards = Cards::make(world.settings.cards);
  void* memory =
      ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  world.counts = new (memory) Counts;
  return Stress(world).run();
}

}  // namespace
}  // namespace headroom::lease

int main(int argc, char** argv) {
  try {
    return headroom::lease::run(argc, argv);
  } catch (const headroom::Error& error) {
    std::fprintf(stderr, "lease_stress: %s\n", error.what());
    return 64;
  }
}
