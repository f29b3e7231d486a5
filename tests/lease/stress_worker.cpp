#include "tests/lease/stress_worker.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/lease/acquire.h"
#include "headroom/lease/detail/point.h"

namespace headroom::lease {

using namespace fixtures;

namespace {

int dies_at = -1;  // the point at which this round ends

constexpr int kPointsOfTheCode = 6, kPoints = kPointsOfTheCode + 3;
void die_at(int point) {
  if (point == dies_at) ::kill(::getpid(), SIGKILL);
}

}  // namespace

Worker::Worker(const World& world, Slot& slot, unsigned seed)
    : world_(world),
      slot_(slot),
      random_(seed),
      directory_(Directory::at(world.folder)),
      sampler_(steady(std::make_shared<SharedSource>(*world.cards)), {.keep_sampling = false}) {
  const ProcessIdentity self = this_process();
  slot_.start_ticks = self.start_ticks;
  slot_.pid = self.pid;
  detail::at_point = [](detail::Point point) { die_at(static_cast<int>(point)); };
}

void Worker::round() {
  dies_at = below(100) < world_.settings.kill_percent ? below(kPoints) : -1;
  ++world_.counts->rounds;
  try {
    auto lease = world_.settings.naive ? naive() : honest();
    if (lease) use(*std::move(lease));
    // A point that was not reached, because there was no lease: anywhere else will do.
    if (dies_at >= 0) ::kill(::getpid(), SIGKILL);
  } catch (const BusyError&) {
    ++world_.counts->refused;
  } catch (const Error& error) {
    std::fprintf(stderr, "lease_stress: %s\n", error.what());
    ++world_.counts->errors;
  }
}

std::optional<Lease> Worker::honest() {
  const bool gang = world_.settings.cards > 1;
  gpu::DeviceRequest request{.need = Bytes{(64LL + below(4000)) << 20}};
  if (gang) request.count = 1 + below(world_.settings.cards);
  gpu::WaitOptions options;
  options.interval = Seconds(0.5);
  if (gang || below(5) == 0) options.timeout = Seconds(gang ? 300 : 2);
  Acquired got = acquire(directory_, sampler_, request, options, "stress",
                         below(50) == 0 && !gang ? Amount::all_usable : Amount::needed);
  ++(got.lease                      ? world_.counts->leases
     : options.timeout > Seconds(0) ? world_.counts->timed_out
                                    : world_.counts->refused);
  return std::move(got.lease);
}

// The wrong rule: the smaller of free and unreserved memory.
std::optional<Lease> Worker::naive() {
  const Bytes need{(64LL + below(4000)) << 20};
  const Directory::Turn turn = directory_.take_turn();
  const Contents now = turn.contents();
  Bytes unreserved = world_.cards->total - kMargin;
  for (const Claim& lease : now.leases) unreserved -= reserved_on(lease, uuid_of(0));
  const Bytes free = world_.cards->total - kMargin - world_.cards->used(0);
  if (std::min(unreserved, free) < need) return {};
  ++world_.counts->leases;
  Claim claim;
  claim.shares = {{uuid_of(0), need}};
  return turn.make_lease(std::move(claim), now);
}

// Takes the memory in steps, gives a part of it back, all of it, and at last the lease.
void Worker::use(Lease lease) {
  slot_.lease = number_of(lease.claim().id);
  die_at(kPointsOfTheCode);
  const bool with_child = below(20) == 0;
  slot_.has_child = with_child;
  const pid_t child = with_child ? ::fork() : -1;
  if (child == 0) {
    ::usleep(static_cast<useconds_t>(below(5000)));
    ::_exit(0);
  }
  const int steps = 1 + below(3);
  for (int step = 1; step <= steps; ++step) {
    set_used(lease.claim(), step, steps);
    if (step == 1) die_at(kPointsOfTheCode + 1);
    hold();
  }
  if (below(3) == 0) set_used(lease.claim(), 1, 3);
  hold();
  if (below(3) != 0) set_used(lease.claim(), 0, 1);
  die_at(kPointsOfTheCode + 2);
  // Some let the lease go while the memory is still in use, as a driver does that drains.
  { const Lease over = std::move(lease); }
  slot_.lease = 0;
  for (auto& used : slot_.used) used = 0;
  if (child > 0) ::waitpid(child, nullptr, 0);
}

// Until the others had some rounds meanwhile, so that the card gets full however fast the machine
// is: 16 rounds took 110 ms where this was written. Where all of them wait for each other, not for
// ever. The naive rule asks no card, and its rounds are soon over.
void Worker::hold() {
  if (world_.settings.naive) {
    std::this_thread::sleep_for(std::chrono::microseconds(below(30'000)));
    return;
  }
  const long long until = world_.counts->rounds + below(16);
  const auto at_most = Clock::now() + std::chrono::milliseconds(100);
  while (world_.counts->rounds < until && Clock::now() < at_most)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void Worker::set_used(const Claim& claim, int part, int of) {
  for (const Share& share : claim.shares)
    slot_.used[share.card.bytes[5]] = share.reserved.count / of * part;
}

}  // namespace headroom::lease
