#include "tests/oracle/fuzz.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>

#include "tests/oracle/figures.h"
#include "tests/oracle/minimise.h"
#include "tests/oracle/settings_dice.h"

namespace headroom::oracle {
namespace {

struct Tally {
  std::uint64_t streams = 0, operations = 0, compared = 0, partly = 0, after_fault = 0,
                streams_with_fault = 0, requests = 0, refused = 0, retries = 0;

  void add(const Outcome& outcome) {
    ++streams;
    operations += outcome.operations;
    compared += outcome.compared;
    partly += outcome.partly;
    after_fault += outcome.after_fault;
    streams_with_fault += outcome.after_fault > 0;
    requests += outcome.requests;
    refused += outcome.refused;
    retries += outcome.retries;
  }
  void add(const Tally& other) {
    streams += other.streams;
    operations += other.operations;
    compared += other.compared;
    partly += other.partly;
    after_fault += other.after_fault;
    streams_with_fault += other.streams_with_fault;
    requests += other.requests;
    refused += other.refused;
    retries += other.retries;
  }
};

using Count = unsigned long long;

void print_header() {
  std::printf("%-19s %8s %10s %10s %9s %9s %10s %8s %7s\n", "class", "streams", "events",
              "requests", "refused", "retries", "left out", "streams", "partly");
}

// "left out": events after a fault of the original, and in how many streams; "partly": events of
// which a peak or sum of inactive_split was let pass.
void print_row(const std::string& name, const Tally& tally) {
  const auto n = [](std::uint64_t count) { return static_cast<Count>(count); };
  std::printf("%-19s %8llu %10llu %10llu %9llu %9llu %10llu %8llu %7llu\n", name.c_str(),
              n(tally.streams), n(tally.compared), n(tally.requests), n(tally.refused),
              n(tally.retries), n(tally.after_fault), n(tally.streams_with_fault), n(tally.partly));
}

double share_left_out(const Tally& tally) {
  const double left_out = static_cast<double>(tally.after_fault + tally.partly);
  return tally.operations > 0 ? left_out / static_cast<double>(tally.operations) : 0;
}

bool leaves_out_too_much(const FuzzOptions& options, const Tally& all) {
  const bool limited = options.class_name.empty() && all.streams >= kStreamsForLimit;
  return limited && share_left_out(all) > kMostLeftOut;
}

std::string again(const FuzzOptions& options, std::uint64_t index) {
  return "allocator_oracle fuzz --seed " + std::to_string(options.seed) +
         (options.class_name.empty() ? "" : " --class " + options.class_name) + " --only " +
         std::to_string(index);
}

void report(const FuzzOptions& options, std::uint64_t index, const Outcome& outcome) {
  Stream stream = make_stream(options.seed, index, options.class_name);
  std::printf("\nDIFFERENCE in stream %llu of seed %llu, class %s, at operation %llu of %zu\n%s\n",
              static_cast<Count>(index), static_cast<Count>(options.seed),
              stream.class_name.c_str(), static_cast<Count>(outcome.at),
              stream.content.operations.size(), outcome.difference);
  std::printf("setup: %s\nagain: %s\n", to_options(stream.setup).c_str(),
              again(options, index).c_str());
  if (!options.minimise) return;
  std::fflush(stdout);
  stream = minimised(std::move(stream));
  const Outcome least = duel([&] { return stream; });
  std::printf("\nminimised to %zu operations; at operation %llu:\n%s\n%s",
              stream.content.operations.size(), static_cast<Count>(least.at), least.difference,
              to_text(stream).c_str());
}

// Keeps `jobs` children at work and takes their outcomes in order.
class Round {
 public:
  explicit Round(const FuzzOptions& options) : options_(options), indices_(options.only) {
    if (indices_.empty())
      for (std::uint64_t i = 0; i < options.streams; ++i) indices_.push_back(i);
  }

  bool run() {
    std::deque<std::unique_ptr<Duel>> running;
    std::size_t started = 0;
    bool agreed = true;
    for (std::size_t done = 0; done < indices_.size(); ++done) {
      for (; started < indices_.size() && started < done + static_cast<std::size_t>(options_.jobs);
           ++started)
        running.push_back(start(indices_[started]));
      const Outcome outcome = running.front()->outcome();
      running.pop_front();
      agreed &= take(indices_[done], outcome);
      if (!agreed && !options_.keep_going) return false;
    }
    return agreed;
  }

  [[nodiscard]] const std::map<std::string, Tally>& tallies() const { return tallies_; }

 private:
  std::unique_ptr<Duel> start(std::uint64_t index) {
    return std::make_unique<Duel>([this, index] {
      Stream stream = make_stream(options_.seed, index, options_.class_name);
      stream.setup.asks = options_.asking;
      return stream;
    });
  }

  bool take(std::uint64_t index, const Outcome& outcome) {
    const std::string name = class_of(index, options_.class_name);
    tallies_[name].add(outcome);
    if (options_.verbose) {
      Tally one;
      one.add(outcome);
      print_row(std::to_string(index) + " " + name, one);
    }
    if (outcome.differs) report(options_, index, outcome);
    return !outcome.differs;
  }

  const FuzzOptions& options_;
  std::vector<std::uint64_t> indices_;
  std::map<std::string, Tally> tallies_;
};

}  // namespace

bool fuzz(const FuzzOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  print_header();
  std::fflush(stdout);  // a child must not print it again
  Round round(options);
  const bool agreed = round.run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  Tally all;
  for (const auto& [name, tally] : round.tallies()) {
    print_row(name, tally);
    all.add(tally);
  }
  print_row("all", all);
  std::printf("%s; %.3f %% of the events left out in whole or part; seed %llu, %.1f s\n",
              !agreed            ? "NOT EQUAL"
              : all.compared > 0 ? "every figure equal after every event"
                                 : "NOTHING COMPARED",
              100 * share_left_out(all), static_cast<Count>(options.seed), taken.count());
  const bool too_much = leaves_out_too_much(options, all);
  if (too_much) std::printf("TOO MUCH LEFT OUT: at most %.1f %% may be\n", 100 * kMostLeftOut);
  return agreed && all.compared > 0 && !too_much;
}

bool finds_planted_differences(std::uint64_t seed) {
  std::vector<std::pair<Plant, std::string>> plants = {
      {{Plant::Kind::verdict}, "the request"},
      {{Plant::Kind::text}, "the text of the refusal"},
      {{Plant::Kind::address}, "the address of the block"},
      {{Plant::Kind::snapshot_state}, "snapshot: block.state"},
      {{Plant::Kind::snapshot_size}, "snapshot: block.size"}};
  for (std::size_t i = 0; i < kFigures; ++i)
    plants.push_back({{Plant::Kind::figure, i}, figure_name(i)});

  std::size_t found = 0;
  for (const auto& [plant, expected] : plants) {
    bool is_found = false;
    // Not every stream has an occasion: a refusal, a segment left at the end.
    for (std::uint64_t index = 0; index < 50 && !is_found; ++index) {
      const Outcome outcome = duel([&] { return make_stream(seed, index, "defaults"); }, plant);
      is_found = outcome.differs && std::string(outcome.difference).starts_with(expected + "\n");
    }
    found += is_found;
    if (!is_found) std::printf("NOT FOUND: a difference planted in %s\n", expected.c_str());
  }
  std::printf("%zu of %zu planted differences were found\n", found, plants.size());
  return found == plants.size();
}

}  // namespace headroom::oracle
