// headroom/allocator/settings beside PyTorch's own parser (settings_judge.h). Each text goes to
// both; verdict and every readable value must agree.
#include <c10/util/env.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "tests/oracle/settings_judge.h"

namespace {

using headroom::Bytes;
using headroom::allocator::Backend;
using headroom::allocator::Settings;
using headroom::testing::Answer;
using headroom::testing::ask_fork;
using headroom::testing::ask_new_program;
using headroom::testing::Environment;
using headroom::testing::kTotals;
using headroom::testing::kVariables;

// ---- Comparing ----

std::uint64_t bounded(std::uint64_t bytes) {
  return std::min<std::uint64_t>(bytes, headroom::allocator::kLargestSize.count);
}
std::uint64_t count(Bytes bytes) {
  return static_cast<std::uint64_t>(bytes.count);
}

Settings as_settings(const Answer& answer) {
  Settings s;
  const auto size = [](std::uint64_t bytes) {
    return Bytes{static_cast<std::int64_t>(bounded(bytes))};
  };
  s.backend = answer.async_backend ? Backend::cuda_malloc_async : Backend::native;
  s.large_segment_size = size(answer.large_segment);
  if (answer.max_split != SIZE_MAX) s.max_split_size = size(answer.max_split);
  s.max_non_split_rounding_size = size(answer.max_non_split);
  std::copy_n(answer.divisions, 16, s.roundup_power2_divisions.begin());
  s.garbage_collection_threshold = answer.gc_threshold;
  s.per_process_memory_fraction = answer.memory_fraction;
  s.expandable_segments = answer.expandable;
  s.release_lock_on_cudamalloc = answer.release_lock;
  s.graph_capture_record_stream_reuse = answer.graph_reuse;
  s.pinned_use_cuda_host_register = answer.host_register;
  s.pinned_use_background_threads = answer.background_threads;
  s.pinned_num_register_threads = answer.register_threads;
  const std::uint64_t largest_mib = count(headroom::allocator::kLargestSize) >> 20;
  s.pinned_reserve_segment_size = size(std::min(answer.reserve_segment_mib, largest_mib) << 20);
  s.throw_on_cudamalloc_oom = answer.throw_on_oom;
  s.pinned_free_catch_all = answer.catch_all;
  if (answer.max_round_threshold != SIZE_MAX)
    s.pinned_max_round_threshold = size(answer.max_round_threshold);
  if (answer.max_cached_size != SIZE_MAX) s.pinned_max_cached_size = size(answer.max_cached_size);
  return s;
}

// The judge tells what a reserve comes to and not how it is written.
void compare_reserves(Settings& ours, const Answer& judge, const std::string& asked) {
  const auto bytes = [](const headroom::allocator::AddressReserve& reserve, std::size_t total) {
    const double unit = reserve.is_share ? static_cast<double>(total) : 1 << 30;
    return std::min(std::trunc(reserve.value * unit), 0x1p64);
  };
  if (headroom::allocator::default_version().minor < 15) return;
  for (std::size_t row = 0; row < std::size(judge.reserve); ++row)
    for (std::size_t i = 0; i < std::size(kTotals); ++i) {
      auto reserve = ours.expandable_segments_reserve;
      if (row > 0)
        for (const auto& own : ours.expandable_segments_reserve_by_class)
          if (own.name == headroom::testing::kClasses[row - 1]) reserve = own.reserve;
      EXPECT_EQ(reserve ? bytes(*reserve, kTotals[i]) : -1, judge.reserve[row][i])
          << asked << "\n row " << row << ", total " << kTotals[i];
    }
  ours.expandable_segments_reserve.reset();
  ours.expandable_segments_reserve_by_class.clear();
}

struct Tally {
  int accepted = 0, refused = 0;

  // Counts, and says where `ours` (nothing: refused) and the judge differ.
  void compare(std::optional<Settings> ours, const Answer& judge, const std::string& asked) {
    ++(judge.accepted ? accepted : refused);
    ASSERT_EQ(ours.has_value(), judge.accepted) << "accepted or not: " << asked;
    if (!ours) return;
    compare_reserves(*ours, judge, asked);
    EXPECT_EQ(*ours, as_settings(judge))
        << asked << "\n ours: " << to_string(*ours) << "\n real: " << to_string(as_settings(judge));
  }
};

std::optional<Settings> ours(const std::string& text,
                             const std::vector<std::string>& changes = {}) {
  try {
    Settings settings = headroom::allocator::parse_settings(text);
    for (const std::string& change : changes) headroom::allocator::apply(settings, change);
    return settings;
  } catch (const headroom::UsageError&) {
    return {};
  }
}

// Those of the version that judges.
std::vector<headroom::allocator::OptionInfo> options_here() {
  std::vector<headroom::allocator::OptionInfo> found;
  for (const auto& info : headroom::allocator::options())
    if (info.since <= headroom::allocator::default_version().minor) found.push_back(info);
  return found;
}

// ---- The questions ----

TEST(SettingsOracle, TheJudgeIsTheParserOfThisVersion) {
  std::ifstream version(HEADROOM_TORCH_DIR "/version.py");
  const std::string text{std::istreambuf_iterator<char>(version), {}};
  const std::string wanted = "'" + std::string(headroom::allocator::default_version().torch) + ".";
  EXPECT_NE(text.find(wanted), std::string::npos) << wanted << " is not in " HEADROOM_TORCH_DIR;
}

// clang and g++ name the static variables of an inline function differently, so a program of
// clang's has other ones than LibTorch, whose headers keep the list of options in them.
#ifdef __clang__
#define SKIP_UNDER_CLANG() \
  GTEST_SKIP() << "LibTorch, built with g++, has a list of options of its own"
#else
#define SKIP_UNDER_CLANG() static_assert(true)
#endif

TEST(SettingsOracle, BothKnowTheSameOptions) {
  SKIP_UNDER_CLANG();
  std::set<std::string> known = {"release_lock_on_hipmalloc", "pinned_use_hip_host_register"};
  for (const auto& info : options_here()) known.emplace(info.name);
  EXPECT_EQ(known, headroom::testing::options_of_the_parser());
}

TEST(SettingsOracle, DefaultsAreTheSame) {
  EXPECT_EQ(as_settings(ask_new_program({})), Settings{});
}

TEST(SettingsOracle, TextsAreAcceptedAndReadAlike) {
  headroom::testing::SettingsTexts texts(20260401);
  Tally tally;
  std::map<std::string, int> accepted_with;
  for (int i = 0; i < 10000 && !HasFatalFailure(); ++i) {
    const std::string text = texts.next();
    const Answer judge = ask_fork(text);
    tally.compare(ours(text), judge, text);
    if (!judge.accepted) continue;
    for (const auto& named : headroom::allocator::named_options(text))
      ++accepted_with[named.option];
    EXPECT_EQ(headroom::allocator::parse_settings(to_string(as_settings(judge))),
              as_settings(judge))
        << "round trip of " << text;
  }
  std::printf("%d accepted, %d refused\n", tally.accepted, tally.refused);
  EXPECT_GE(tally.accepted, 4000) << "too few valid texts to mean anything";
  EXPECT_GE(tally.refused, 3000) << "too few invalid texts to mean anything";
  for (const auto& info : options_here()) {
    if (info.name == "backend") continue;
    EXPECT_GE(accepted_with[std::string(info.name)], 100) << info.name;
  }
}

// Bytes end at 8 EiB, PyTorch's sizes at 16: ours are then the largest, and compare as equal.
TEST(SettingsOracle, SizesBeyondBytesAreTheLargest) {
  Tally tally;
  for (const std::string size :
       {"8796093022206", "8796093022207", "8796093022208", "17592186044415", "17592186044416",
        "18446744073709551615", "-1", "-600"}) {
    for (const std::string option :
         {"large_segment_size_mb:", "max_split_size_mb:", "max_non_split_rounding_mb:",
          "pinned_reserve_segment_size_mb:"})
      tally.compare(ours(option + size), ask_fork(option + size), option + size);
  }
  EXPECT_EQ(tally.accepted, 32);
}

TEST(SettingsOracle, TheBackendIsChosenWhileLoading) {
  headroom::testing::SettingsTexts texts(20260402);
  Tally tally;
  int async = 0;
  for (int i = 0; i < 1000 && !HasFatalFailure(); ++i) {
    const std::string text = texts.next_with_backend();
    const Answer judge = ask_new_program({{"PYTORCH_CUDA_ALLOC_CONF", text}});
    tally.compare(ours(text), judge, text);
    async += judge.accepted && judge.async_backend;
  }
  std::printf("%d accepted (%d of them cudaMallocAsync), %d refused\n", tally.accepted, async,
              tally.refused);
  EXPECT_GE(async, 50);
  EXPECT_GE(tally.accepted - async, 50);
  EXPECT_GE(tally.refused, 50);
}

TEST(SettingsOracle, ChangesWhileRunningResetTheSameOptions) {
  SKIP_UNDER_CLANG();
  headroom::testing::SettingsTexts texts(20260403);
  Tally tally;
  for (int i = 0; i < 2000 && !HasFatalFailure(); ++i) {
    std::string start = texts.next();
    while (!ours(start)) start = texts.next();
    std::vector<std::string> changes;
    // Mostly accepted changes, and now and then a last one that may be refused.
    for (std::size_t n = texts.below(3); n > 0; --n) {
      changes.push_back(texts.next());
      while (!ours(start, changes)) changes.back() = texts.next();
    }
    changes.push_back(texts.one_in(8)
                          ? texts.pick({"backend:native", "backend:cudaMallocAsync", ""})
                          : texts.next());
    std::string asked = start;
    for (const std::string& change : changes) asked += "  then  " + change;
    tally.compare(ours(start, changes), ask_fork(start, changes), asked);
  }
  std::printf("%d accepted, %d refused\n", tally.accepted, tally.refused);
  EXPECT_GE(tally.accepted, 500);
  EXPECT_GE(tally.refused, 100);
}

TEST(SettingsOracle, TheSameVariableWins) {
  headroom::testing::SettingsTexts texts(20260404);
  Tally tally;
  for (int i = 0; i < 800 && !HasFatalFailure(); ++i) {
    Environment environment;
    std::string asked;
    for (const char* name : kVariables) {
      if (texts.one_in(2)) continue;
      std::string text = texts.one_in(3) ? texts.next_with_backend() : texts.next();
      while (!texts.one_in(4) && !ours(text)) text = texts.next();
      environment[name] = texts.one_in(8) ? "" : text;
      asked += std::string(name) + "=" + environment[name] + "\n";
    }
    const auto look_up = [&](const std::string& name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    std::optional<Settings> here;
    try {
      here = headroom::allocator::effective_settings(look_up).settings;
    } catch (const headroom::UsageError&) {
    }
    tally.compare(here, ask_new_program(environment), asked);
  }
  std::printf("%d accepted, %d refused\n", tally.accepted, tally.refused);
  EXPECT_GE(tally.accepted, 100);
  EXPECT_GE(tally.refused, 40);
}

TEST(SettingsOracle, CachingIsSwitchedOffByOneOnly) {
  for (const char* value : {"1", "0", "", "yes", "true", " 1", "2"}) {
    setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", value, 1);
    const bool judge = c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING").value_or(false);
    const auto here = headroom::allocator::effective_settings(
        [&](const std::string& name) -> std::optional<std::string> {
          if (name != "PYTORCH_NO_CUDA_MEMORY_CACHING") return {};
          return value;
        });
    EXPECT_EQ(here.caching, !judge) << value;
  }
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
}

}  // namespace
