#include "headroom/sim/injection.h"

#include <limits>
#include <optional>
#include <string>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/gpu/simulated.h"

namespace headroom::sim {
namespace {

// Counts from 1, over all cards an injector is installed on.
class Counter {
 public:
  std::uint64_t next() { return 1 + count_->fetch_add(1, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> count_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
};

// A number in [0, 1), unrelated to those of neighbouring seeds (splitmix64).
double scattered(std::uint64_t seed) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

void check_share(double share) {
  if (!(share >= 0 && share <= 1))
    throw UsageError(
        expectation("neighbour", "a share of the card from 0 to 1", std::to_string(share), "0.3"));
}

// ---- Parsing ----

constexpr std::string_view kOnCard = ":card=";

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(expectation("inject",
                               "oom@K, oom@K:lasting, oom@K:every=N, oom@step=S, "
                               "oom@step=S:phase=data|forward|backward|optimizer|"
                               "eval or neighbour@step=S:30%, each with :card=N for one card",
                               text, "oom@100"));
}

std::optional<trace::Phase> phase_named(std::string_view name) {
  using trace::Phase;
  if (name == "eval") return Phase::evaluation;
  for (const Phase phase : {Phase::data, Phase::forward, Phase::backward, Phase::optimizer})
    if (trace::to_string(phase) == name) return phase;
  return {};
}

// The rest of `text` after `prefix`; std::nullopt if `text` does not begin with it.
std::optional<std::string_view> after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return {};
  return text.substr(prefix.size());
}

std::optional<std::uint64_t> number_in(std::string_view text, long long least) {
  const auto number = to_integer(text);
  if (!number || *number < least) return {};
  return static_cast<std::uint64_t>(*number);
}

std::optional<std::uint32_t> step_in(std::string_view text) {
  const auto step = number_in(text, 0);
  if (!step || *step > std::numeric_limits<std::uint32_t>::max()) return {};
  return static_cast<std::uint32_t>(*step);
}

// "30%"
std::optional<double> share_in(std::string_view text) {
  if (!text.ends_with('%')) return {};
  const auto percent = to_number(text.substr(0, text.size() - 1));
  if (!percent || !(*percent >= 0 && *percent <= 100)) return {};
  return *percent / 100;
}

std::optional<Injector> oom_at_step(std::uint32_t step, std::string_view how) {
  if (how.empty()) return at_step(step, once(1));
  const auto name = after(how, "phase=");
  const auto phase = name ? phase_named(*name) : std::nullopt;
  if (!phase) return {};
  return at_step(step, in_phase(*phase, once(1)));
}

std::optional<Injector> oom_at_request(std::uint64_t k, std::string_view how, const Lift& lift) {
  if (how.empty()) return once(k);
  if (how == "lasting") return lasting(k, lift);
  const auto every_n = after(how, "every=");
  const auto n = every_n ? number_in(*every_n, 1) : std::nullopt;
  if (!n) return {};
  return every(*n, k);
}

std::optional<Injector> read_injection(std::string_view text, const Lift& lift) {
  const std::size_t colon = text.find(':');
  const std::string_view where = text.substr(0, colon);
  const std::string_view how = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (colon != std::string_view::npos && how.empty()) return {};
  if (const auto step_text = after(where, "oom@step=")) {
    const auto step = step_in(*step_text);
    return step ? oom_at_step(*step, how) : std::nullopt;
  }
  if (const auto k_text = after(where, "oom@")) {
    const auto k = number_in(*k_text, 1);
    return k ? oom_at_request(*k, how, lift) : std::nullopt;
  }
  if (const auto step_text = after(where, "neighbour@step=")) {
    const auto step = step_in(*step_text);
    const auto share = share_in(how);
    if (step && share) return at_step(*step, neighbour(*share));
  }
  return {};
}

template <typename Value>
Injector where(Value Request::*member, Value value, Injector injector) {
  return [=, injector = std::move(injector)](const Request& request) {
    return request.*member == value ? injector(request) : Disturbance();
  };
}

void check_counted_from_one(std::string_view function, std::uint64_t number) {
  if (number == 0) throw UsageError(expectation(function, "a number from 1 on", "0"));
}

}  // namespace

// ---- Refusals ----

Injector once(std::uint64_t k) {
  check_counted_from_one("once", k);
  return [k, counter = Counter()](const Request&) mutable { return counter.next() == k; };
}

Injector lasting(std::uint64_t k, Lift lift) {
  check_counted_from_one("lasting", k);
  constexpr auto kNone = std::numeric_limits<std::int64_t>::max();
  auto least = std::make_shared<std::atomic<std::int64_t>>(kNone);
  return [k, least, lift = std::move(lift), counter = Counter()](const Request& request) mutable {
    if (counter.next() == k) least->store(request.bytes.count);
    return !lift.done() && request.bytes.count >= least->load();
  };
}

Injector every(std::uint64_t n, std::uint64_t first) {
  check_counted_from_one("every", n);
  return [n, first, counter = Counter()](const Request&) mutable {
    const std::uint64_t number = counter.next();
    return number >= first && (number - first) % n == 0;
  };
}

Injector every(std::uint64_t n) {
  return every(n, n);
}

Injector randomly(double probability, std::uint64_t seed) {
  if (!(probability >= 0 && probability <= 1))
    throw UsageError(
        expectation("randomly", "a probability from 0 to 1", std::to_string(probability), "0.01"));
  return [=](const Request& request) {
    const auto card = static_cast<std::uint64_t>(request.card) << 56;
    return scattered(seed ^ card ^ request.number) < probability;
  };
}

// ---- A neighbour ----

Injector neighbour(double share) {
  check_share(share);
  return [share](const Request&) { return Disturbance(false, share); };
}

Injector neighbour(std::vector<NeighbourChange> changes) {
  for (const NeighbourChange& change : changes) check_share(change.share);
  return [changes = std::move(changes), counter = Counter()](const Request&) mutable {
    const std::uint64_t number = counter.next();
    Disturbance now;
    for (const NeighbourChange& change : changes)
      if (change.request <= number) now.neighbour_share = change.share;
    return now;
  };
}

// ---- Where and when ----

Injector on_card(int index, Injector injector) {
  return where(&Request::card, index, std::move(injector));
}

Injector in_phase(trace::Phase phase, Injector injector) {
  return where(&Request::phase, phase, std::move(injector));
}

Injector at_step(std::uint32_t step, Injector injector) {
  return where(&Request::step, step, std::move(injector));
}

Injector any_of(std::vector<Injector> injectors) {
  return [injectors = std::move(injectors)](const Request& request) {
    Disturbance all;
    for (const Injector& injector : injectors) {
      const Disturbance one = injector(request);
      all.refuse = all.refuse || one.refuse;
      if (one.neighbour_share) all.neighbour_share = one.neighbour_share;
    }
    return all;
  };
}

Injector noted(Injector injector, Happened happened) {
  return [injector = std::move(injector), happened = std::move(happened)](const Request& request) {
    const Disturbance one = injector(request);
    if (one.refuse || one.neighbour_share) happened.now();
    return one;
  };
}

Injector parse_injection(std::string_view text, Lift lift) {
  const std::string_view whole = trim(text);
  const std::size_t at = whole.rfind(kOnCard);
  const auto injector = read_injection(whole.substr(0, at), lift);
  if (!injector) refuse(text);
  if (at == std::string_view::npos) return *injector;
  const auto card = number_in(whole.substr(at + kOnCard.size()), 0);
  if (!card || *card >= gpu::kMostSimulatedCards) refuse(text);
  return on_card(static_cast<int>(*card), *injector);
}

// ---- Installing ----

InjectionScope::InjectionScope(Card& card, const Injector& injector) {
  install(card, injector);
}

InjectionScope::InjectionScope(const Simulation& box, const Injector& injector) {
  try {
    for (int i = 0; i < box.cards(); ++i) install(box.card(i), injector);
  } catch (...) {
    put_back();
    throw;
  }
}

void InjectionScope::install(Card& card, const Injector& injector) {
  before_.emplace_back(card.shared_from_this(), card.inject(injector));
}

InjectionScope::~InjectionScope() {
  put_back();
}

void InjectionScope::put_back() noexcept {
  for (auto& [card, injector] : before_) {
    try {
      (void)card->inject(std::move(injector));
    } catch (const Error&) {  // the shared box does not know that the neighbour is gone
    }
  }
}

// ---- Fragmentation ----

Fragments::Fragments(Card& card, Bytes bytes, Bytes hole) : card_(card.shared_from_this()) {
  if (hole.count <= 0)
    throw UsageError(expectation("fragment", "holes of at least a byte", to_string(hole)));
  std::vector<allocator::BlockId> holes;
  try {
    for (Bytes taken; taken < bytes; taken += hole) {
      const allocator::BlockId block = card.allocate(hole, 0);
      (held_.size() > holes.size() ? holes : held_).push_back(block);
    }
  } catch (...) {
    for (const auto* blocks : {&holes, &held_})
      for (const allocator::BlockId block : *blocks) card.free(block);
    throw;
  }
  for (const allocator::BlockId block : holes) card.free(block);
}

Fragments::~Fragments() {
  for (const allocator::BlockId block : held_) card_->free(block);
}

}  // namespace headroom::sim
