#include "headroom/gpu/sampler.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace headroom::gpu {
namespace {

constexpr unsigned kFirstWorker = 1;
constexpr int kOpening = -1;  // in place of a card number: the call that opens the driver

// Decides when to read a card's process list: at the requested interval, less often while reads are
// slow.
class ProcessPace {
 public:
  explicit ProcessPace(Seconds wished) : wished_(wished), now_(wished) {}

  [[nodiscard]] bool due(Clock::time_point now) const { return !last_ || now - *last_ >= now_; }

  void asked(Clock::time_point start, Clock::time_point end) {
    constexpr Seconds kDear{0.005}, kRarest{10.0};
    last_ = start;
    now_ = end - start > kDear ? std::min(2 * now_, std::max(kRarest, wished_)) : wished_;
  }

 private:
  Seconds wished_, now_;
  std::optional<Clock::time_point> last_;
};

}  // namespace

struct Sampler::State : std::enable_shared_from_this<State> {
  State(std::shared_ptr<CardSource> from, SamplerOptions with)
      : source(std::move(from)), options(with) {}

  void start_worker();
  void work(unsigned my_number);
  bool open_source(unsigned my_number);
  void sample_card(std::size_t i, unsigned my_number);
  // Runs `call` unlocked while `busy_*` names its card; false if the call was given up meanwhile.
  template <typename Call>
  bool guarded_call(int card, unsigned my_number, Call&& call);
  void give_up_hanging_call(Clock::time_point now);  // needs the lock
  [[nodiscard]] bool nothing_left_to_wait_for(Clock::time_point asked) const;
  [[nodiscard]] Machine current();  // needs the lock

  const std::shared_ptr<CardSource> source;
  const SamplerOptions options;

  mutable std::mutex guard;
  std::condition_variable changed;
  Machine machine;
  std::vector<ProcessPace> paces;
  bool opened = false;
  std::exception_ptr failure;  // thrown by open(); rethrown to every caller
  bool stop = false;
  int workers = 0;      // threads that have not ended
  unsigned worker = 0;  // number of the current worker; earlier ones were given up
  std::optional<int> busy_card;
  Clock::time_point busy_since{};
  Clock::time_point wanted{};  // all data sampled before this must be sampled again
  const Clock::time_point created = Clock::now();
};

void Sampler::State::start_worker() {
  const unsigned number = ++worker;
  busy_card.reset();
  ++workers;
  std::thread([self = shared_from_this(), number] {
    self->work(number);
    const std::lock_guard lock(self->guard);
    --self->workers;
    self->changed.notify_all();
  }).detach();
}

template <typename Call>
bool Sampler::State::guarded_call(int card, unsigned my_number, Call&& call) {
  {
    const std::lock_guard lock(guard);
    if (stop || worker != my_number) return false;
    busy_card = card;
    busy_since = Clock::now();
  }
  call();
  const std::lock_guard lock(guard);
  if (worker == my_number) {
    busy_card.reset();
    return !stop;
  }
  // A call that was given up has returned: the new worker may sample its card again, and does so at
  // once, because a caller may have waited while the card was stuck.
  if (card >= 0) {
    machine.cards[static_cast<std::size_t>(card)].stuck = false;
    wanted = Clock::now();
    changed.notify_all();
  }
  return false;
}

bool Sampler::State::open_source(unsigned my_number) {
  Machine found;
  const auto open = [&] {
    try {
      found = source->open();
    } catch (...) {
      const std::lock_guard lock(guard);
      failure = std::current_exception();
      changed.notify_all();
    }
  };
  if (!guarded_call(kOpening, my_number, open)) return false;
  const std::lock_guard lock(guard);
  if (failure) return false;
  machine = std::move(found);
  paces.assign(machine.cards.size(), ProcessPace(options.process_interval));
  opened = true;
  changed.notify_all();
  return true;
}

void Sampler::State::sample_card(std::size_t i, unsigned my_number) {
  Card card;
  bool ask_processes = false;
  {
    const std::lock_guard lock(guard);
    card = machine.cards[i];
    if (card.stuck) return;
    // fresh() returns memory and processes that belong together.
    ask_processes = !options.keep_sampling || !card.processes_sampled ||
                    *card.processes_sampled < wanted ||
                    (options.processes && paces[i].due(Clock::now()));
  }
  const int number = static_cast<int>(i);
  const auto started = Clock::now();
  if (!guarded_call(number, my_number, [&] { source->read_gauges(card); })) return;
  card.sampled = started;
  {
    // Publishes memory before the slower process list is read.
    const std::lock_guard lock(guard);
    const bool stuck = machine.cards[i].stuck;
    machine.cards[i] = card;
    machine.cards[i].stuck = stuck;
  }
  if (ask_processes) {
    const auto before = Clock::now();
    const auto ask = [&] {
      source->read_processes(card);
      if (options.activity) source->read_activity(card);
    };
    if (!guarded_call(number, my_number, ask)) return;
    card.processes_sampled = before;
    const std::lock_guard lock(guard);
    paces[i].asked(before, Clock::now());
    machine.cards[i] = card;
  }
  changed.notify_all();
}

void Sampler::State::work(unsigned my_number) {
  // Only the first worker opens the driver: a second one would hang in the same call.
  if (my_number == kFirstWorker && !open_source(my_number)) return;
  while (true) {
    const auto round = Clock::now();
    std::size_t cards = 0;
    {
      const std::lock_guard lock(guard);
      cards = machine.cards.size();
    }
    for (std::size_t i = 0; i < cards; ++i) sample_card(i, my_number);

    std::unique_lock lock(guard);
    const auto not_mine = [&] { return stop || worker != my_number; };
    const auto needed = [&] { return not_mine() || wanted > round; };
    if (options.keep_sampling) {
      changed.wait_until(
          lock, round + std::chrono::duration_cast<Clock::duration>(options.interval), needed);
    } else {
      changed.wait(lock, needed);
    }
    if (not_mine()) return;
  }
}

void Sampler::State::give_up_hanging_call(Clock::time_point now) {
  if (!busy_card || now - busy_since < options.hang_after) return;
  if (*busy_card == kOpening) return;  // no other card to go on with
  machine.cards[static_cast<std::size_t>(*busy_card)].stuck = true;
  start_worker();
}

bool Sampler::State::nothing_left_to_wait_for(Clock::time_point asked) const {
  if (failure) return true;
  if (!opened) return false;
  for (const Card& card : machine.cards) {
    const bool done = card.sampled && *card.sampled >= asked && card.processes_sampled &&
                      *card.processes_sampled >= asked &&
                      (options.keep_sampling || *card.processes_sampled >= *card.sampled);
    if (!done && !card.stuck) return false;
  }
  return true;
}

Sampler::Sampler(std::shared_ptr<CardSource> source, SamplerOptions options)
    : state_(std::make_shared<State>(std::move(source), options)) {
  const std::lock_guard lock(state_->guard);
  state_->start_worker();
}

// Lets a driver call finish before the program ends; a call that hangs is left behind.
Sampler::~Sampler() {
  constexpr auto kGrace = std::chrono::milliseconds(100);
  std::unique_lock lock(state_->guard);
  state_->stop = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kGrace, [&] { return state_->workers == 0; });
}

Machine Sampler::State::current() {
  if (failure) std::rethrow_exception(failure);
  give_up_hanging_call(Clock::now());
  Machine result = machine;
  result.asked = created;
  if (!opened && Clock::now() - created >= options.hang_after) {
    result.silent = true;
    result.why_no_driver =
        "the NVIDIA driver has not answered for " + duration_text(Clock::now() - created);
  }
  return result;
}

Machine Sampler::snapshot() const {
  const std::lock_guard lock(state_->guard);
  return state_->current();
}

Machine Sampler::fresh(Seconds patience) {
  const auto asked = Clock::now();
  const auto deadline = asked + std::chrono::duration_cast<Clock::duration>(patience);
  std::unique_lock lock(state_->guard);
  state_->wanted = asked;
  state_->changed.notify_all();
  // Wakes up every 20 ms, because a call that hangs notifies no one.
  while (!state_->nothing_left_to_wait_for(asked) && Clock::now() < deadline) {
    state_->changed.wait_until(lock,
                               std::min(deadline, Clock::now() + std::chrono::milliseconds(20)));
    state_->give_up_hanging_call(Clock::now());
  }
  return state_->current();
}

}  // namespace headroom::gpu
