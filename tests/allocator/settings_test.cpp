// Headroom reads, explains and sets PyTorch's allocator settings.
// tests/oracle/settings_oracle_test.cpp compares it with PyTorch's own parser.

#include "headroom/allocator/settings.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "headroom/base/error.h"

namespace headroom::allocator {
namespace {

using namespace headroom::literals;

std::string refusal_of(std::string_view text) {
  try {
    static_cast<void>(parse_settings(text));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

EnvironmentLookup variables(std::map<std::string, std::string> set) {
  return [set = std::move(set)](const std::string& name) -> std::optional<std::string> {
    const auto found = set.find(name);
    if (found == set.end()) return {};
    return found->second;
  };
}

const Explanation& line_of(const std::vector<Explanation>& lines, std::string_view option) {
  for (const Explanation& line : lines)
    if (line.option == option) return line;
  throw std::out_of_range(std::string(option));
}

// ---- Reading ----

TEST(ParseSettings, ReadsEveryOption) {
  const Settings s = parse_settings(
      "backend:native, large_segment_size_mb:40, max_split_size_mb:512, "
      "max_non_split_rounding_mb:64, garbage_collection_threshold:0.8, expandable_segments:True, "
      "per_process_memory_fraction:0.5, release_lock_on_cudamalloc:True, "
      "graph_capture_record_stream_reuse:True, pinned_use_cuda_host_register:True, "
      "pinned_num_register_threads:8, pinned_use_background_threads:True, "
      "pinned_reserve_segment_size_mb:256, roundup_power2_divisions:4");
  EXPECT_EQ(s.large_segment_size, 40_MiB);
  EXPECT_EQ(s.max_split_size, 512_MiB);
  EXPECT_EQ(s.max_non_split_rounding_size, 64_MiB);
  EXPECT_EQ(s.garbage_collection_threshold, 0.8);
  EXPECT_EQ(s.per_process_memory_fraction, 0.5);
  EXPECT_EQ(s.pinned_num_register_threads, 8u);
  EXPECT_EQ(s.pinned_reserve_segment_size, 256_MiB);
  EXPECT_EQ(s.roundup_power2_divisions[15], 4u);
  EXPECT_TRUE(s.expandable_segments && s.release_lock_on_cudamalloc &&
              s.graph_capture_record_stream_reuse && s.pinned_use_cuda_host_register &&
              s.pinned_use_background_threads);
}

TEST(ParseSettings, AnEmptyTextMeansTheDefaults) {
  EXPECT_EQ(parse_settings(""), Settings{});
  EXPECT_EQ(parse_settings(" \n"), Settings{});
  EXPECT_EQ(Settings{}.max_split_size, std::nullopt);
}

TEST(ParseSettings, IgnoresAUnitAsPyTorchDoes) {
  EXPECT_EQ(parse_settings("max_split_size_mb:512GB").max_split_size, 512_MiB);
}

TEST(ParseSettings, TheSegmentSizeCountsWhereverItStands) {
  EXPECT_TRUE(contains(refusal_of("max_split_size_mb:30,large_segment_size_mb:40"),
                       "at least large_segment_size_mb, here 40"));
  EXPECT_EQ(parse_settings("large_segment_size_mb:40").max_non_split_rounding_size, 40_MiB);
}

TEST(ParseSettings, AListOfDivisionsFillsBelowItsFirstAndAboveItsLastEntry) {
  const auto table =
      parse_settings("roundup_power2_divisions:[4:2,16:8,>:1]").roundup_power2_divisions;
  EXPECT_EQ(table[0], 2u);  // 1 MiB and less
  EXPECT_EQ(table[2], 2u);  // 4 MiB
  EXPECT_EQ(table[3], 0u);  // 8 MiB: between two entries
  EXPECT_EQ(table[4], 8u);  // 16 MiB
  EXPECT_EQ(table[15], 1u);
}

TEST(ParseSettings, TheFirstBackendNamedIsTheOneLoaded) {
  EXPECT_EQ(parse_settings("backend:cudaMallocAsync").backend, Backend::cuda_malloc_async);
  EXPECT_TRUE(contains(refusal_of("backend:native,backend:cudaMallocAsync"), "cannot change"));
}

TEST(ParseSettings, ARefusalNamesOptionValueAndWhatIsAllowed) {
  EXPECT_EQ(refusal_of("garbage_collection_threshold:1.5"),
            "[parse_settings] expected garbage_collection_threshold to be a number above 0 and "
            "below 1, received '1.5'; try garbage_collection_threshold:0.8");
  EXPECT_EQ(refusal_of("expandable_segments:true"),
            "[parse_settings] expected expandable_segments to be exactly `True` or `False`, "
            "received 'true'; try expandable_segments:True");
}

TEST(ParseSettings, AnUnknownOptionGetsTheNearestName) {
  EXPECT_EQ(refusal_of("max_split_size:512"), "[parse_settings] expected an option of PyTorch " +
                                                  std::string(default_version().torch) +
                                                  "'s allocator, received "
                                                  "'max_split_size'; try max_split_size_mb");
  EXPECT_TRUE(contains(refusal_of("x:1"), "one of backend, large_segment_size_mb"));
}

TEST(ParseSettings, ATextThatStopsHalfwayIsRefused) {
  for (const char* text : {"max_split_size_mb", "max_split_size_mb:", "backend", "x",
                           "roundup_power2_divisions:[4:2", "roundup_power2_divisions:[4:2,"})
    EXPECT_NE(refusal_of(text), "accepted") << text;
  EXPECT_TRUE(contains(refusal_of("max_split_size_mb:"), "followed by a value"));
}

TEST(ApplySettings, ResetsWhatPyTorchResetsAndKeepsTheRest) {
  Settings s = parse_settings(
      "max_split_size_mb:64,large_segment_size_mb:40,max_non_split_rounding_mb:50,"
      "garbage_collection_threshold:0.8,roundup_power2_divisions:4,expandable_segments:True");
  apply(s, "");
  EXPECT_EQ(s.max_split_size, std::nullopt);
  EXPECT_EQ(s.garbage_collection_threshold, 0);
  EXPECT_EQ(s.roundup_power2_divisions, Settings{}.roundup_power2_divisions);
  EXPECT_EQ(s.large_segment_size, 40_MiB);
  EXPECT_EQ(s.max_non_split_rounding_size, 40_MiB);
  EXPECT_TRUE(s.expandable_segments);
}

TEST(ApplySettings, ARefusedChangeChangesNothing) {
  Settings s = parse_settings("max_split_size_mb:64");
  const Settings before = s;
  EXPECT_THROW(apply(s, "expandable_segments:True,max_split_size_mb:1"), UsageError);
  EXPECT_THROW(apply(s, "backend:cudaMallocAsync"), UsageError);
  EXPECT_EQ(s, before);
}

// ---- Printing ----

Settings random_settings(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto sometimes = [&] { return below(3) == 0; };
  const auto fraction = [&] { return static_cast<double>(1 + below(1 << 20)) / ((1 << 20) + 1); };
  Settings s;
  if (below(8) == 0) s.backend = Backend::cuda_malloc_async;
  if (sometimes()) s.large_segment_size = static_cast<std::int64_t>(11 + below(90)) * 1_MiB;
  s.max_non_split_rounding_size = s.large_segment_size;
  if (sometimes()) s.max_non_split_rounding_size += static_cast<std::int64_t>(below(64)) * 1_MiB;
  if (sometimes())
    s.max_split_size = s.large_segment_size + static_cast<std::int64_t>(below(5000)) * 1_MiB;
  if (sometimes()) s.garbage_collection_threshold = fraction();
  if (sometimes()) s.per_process_memory_fraction = fraction();
  if (sometimes())
    for (auto& divisions : s.roundup_power2_divisions)
      divisions = below(2) == 0 ? 0 : std::uint64_t{1} << below(6);
  if (sometimes()) s.roundup_power2_divisions.fill(std::uint64_t{1} << below(6));
  s.expandable_segments = sometimes();
  s.release_lock_on_cudamalloc = sometimes();
  s.graph_capture_record_stream_reuse = sometimes();
  s.pinned_use_cuda_host_register = sometimes();
  s.pinned_use_background_threads = sometimes();
  s.pinned_num_register_threads = std::uint64_t{1} << below(8);
  s.pinned_reserve_segment_size = static_cast<std::int64_t>(below(300)) * 1_MiB;
  return s;
}

TEST(SettingsText, ParsesBackToTheSameSettings) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 5000; ++i) {
    const Settings s = random_settings(random);
    ASSERT_EQ(parse_settings(to_string(s)), s) << to_string(s);
  }
}

TEST(SettingsText, HoldsOnlyWhatDiffersFromTheDefaults) {
  EXPECT_EQ(to_string(Settings{}), "");
  EXPECT_EQ(to_string(parse_settings("expandable_segments:False, max_split_size_mb:512")),
            "max_split_size_mb:512");
  EXPECT_EQ(to_string(parse_settings("large_segment_size_mb:40")), "large_segment_size_mb:40");
  EXPECT_EQ(to_string(parse_settings("roundup_power2_divisions:[4:2,>:1]")),
            "roundup_power2_divisions:[4:2,8:1,>:1]");
}

TEST(SettingsText, KeepsANumberTooSmallForADecimal) {
  const Settings s = parse_settings("garbage_collection_threshold:0x1p-1074");
  EXPECT_EQ(parse_settings(to_string(s)), s) << to_string(s);
}

// ---- The environment ----

TEST(EffectiveSettings, TheCudaVariableHidesTheCommonOneAsAWhole) {
  const auto now = effective_settings(
      variables({{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"},
                 {"PYTORCH_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"}}));
  EXPECT_EQ(to_string(now.settings), "max_split_size_mb:64");
  EXPECT_EQ(now.source.variable, "PYTORCH_CUDA_ALLOC_CONF");
  ASSERT_EQ(now.notes.size(), 1u);
  EXPECT_TRUE(contains(now.notes[0], "PYTORCH_ALLOC_CONF is ignored as a whole"));
}

TEST(EffectiveSettings, AnEmptyVariableHidesTheOtherToo) {
  const auto now = effective_settings(variables(
      {{"PYTORCH_CUDA_ALLOC_CONF", ""}, {"PYTORCH_ALLOC_CONF", "max_split_size_mb:128"}}));
  EXPECT_EQ(now.settings, Settings{});
  EXPECT_TRUE(contains(now.notes.at(0), "(to nothing)"));
}

TEST(EffectiveSettings, TheHipVariableGivesOnlyWhatAllAcceleratorsShare) {
  const std::string text = "max_split_size_mb:64,per_process_memory_fraction:0.5";
  const auto now = effective_settings(variables({{"PYTORCH_HIP_ALLOC_CONF", text}}));
  EXPECT_EQ(to_string(now.settings), "max_split_size_mb:64");
  EXPECT_TRUE(contains(now.notes.at(0), "not for CUDA's own"));
}

TEST(EffectiveSettings, WithoutAVariableAllIsDefault) {
  const auto now = effective_settings(variables({}));
  EXPECT_EQ(now.settings, Settings{});
  EXPECT_EQ(now.source.variable, std::nullopt);
  EXPECT_TRUE(now.notes.empty() && now.caching);
}

TEST(EffectiveSettings, CachingIsOffOnlyWhenTheSwitchIsOne) {
  EXPECT_FALSE(effective_settings(variables({{"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"}})).caching);
  const auto zero = effective_settings(variables({{"PYTORCH_NO_CUDA_MEMORY_CACHING", "0"}}));
  EXPECT_TRUE(zero.caching);
  EXPECT_EQ(zero.notes.size(), 1u);
}

TEST(EffectiveSettings, ARefusalNamesTheVariable) {
  try {
    static_cast<void>(effective_settings(
        variables({{"PYTORCH_HIP_ALLOC_CONF", "backend:x"}, {"PYTORCH_ALLOC_CONF", "backend:y"}})));
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_TRUE(contains(error.what(), "PYTORCH_ALLOC_CONF: [parse_settings]")) << error.what();
  }
}

TEST(MergedValue, KeepsTheUsersTextAndAddsOnlyOtherOptions) {
  EXPECT_EQ(merged_environment_value("", "expandable_segments:True"), "expandable_segments:True");
  EXPECT_EQ(merged_environment_value("max_split_size_mb:64", "expandable_segments:True"),
            "max_split_size_mb:64,expandable_segments:True");
  EXPECT_EQ(merged_environment_value("expandable_segments:False,", "expandable_segments:True"),
            "expandable_segments:False,");
  EXPECT_EQ(merged_environment_value("expandable_segments:False,", "max_split_size_mb:512"),
            "expandable_segments:False,max_split_size_mb:512");
}

TEST(MergedValue, LeavesOutOptionsThatConflictWithTheUsersText) {
  EXPECT_EQ(merged_environment_value("large_segment_size_mb:600", "max_split_size_mb:512"),
            "large_segment_size_mb:600");
}

TEST(MergedValue, RefusesAUsersTextThatPyTorchWouldRefuse) {
  EXPECT_THROW(static_cast<void>(merged_environment_value("x:1", "")), UsageError);
}

TEST(MergedValue, IsAcceptedAndChangesNothingTheUserNamed) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const std::string user = to_string(random_settings(random));
    const std::string merged = merged_environment_value(user, to_string(random_settings(random)));
    ASSERT_EQ(merged.substr(0, user.size()), user);
    const Settings before = parse_settings(user), after = parse_settings(merged);
    for (const NamedValue& named : named_options(user)) {
      // Its default is the size of a segment, which the merged text may set.
      if (named.option == "max_non_split_rounding_mb")
        ASSERT_EQ(after.max_non_split_rounding_size, before.max_non_split_rounding_size) << merged;
      else
        ASSERT_EQ(line_of(explain(after), named.option).value, named.value) << merged;
    }
  }
}

// ---- In words ----

TEST(Options, EveryExampleIsAcceptedAndNoDefault) {
  for (const OptionInfo& info : options()) {
    if (info.name == "backend") continue;  // its example is the default
    const std::string text = std::string(info.name) + ":" + std::string(info.example);
    EXPECT_EQ(to_string(parse_settings(text, versions().back())), text);
  }
}

TEST(Explain, HasOneSentenceForEachOptionThatIsSet) {
  for (const OptionInfo& info : options()) {
    const std::string text = std::string(info.name) + ":" + std::string(info.example);
    const auto lines = explain(parse_settings(text, versions().back()));
    if (info.name == "backend") {
      EXPECT_TRUE(lines.empty());  // its example is the default
      continue;
    }
    ASSERT_EQ(lines.size(), 1u) << text;
    EXPECT_EQ(lines[0].option + ":" + lines[0].value, text);
    EXPECT_TRUE(lines[0].effect.ends_with(".")) << text;
  }
  EXPECT_TRUE(
      contains(explain(parse_settings("max_split_size_mb:512"))[0].effect, "512.0 MiB or more"));
}

TEST(Explain, SaysWhenAnOptionDoesNothing) {
  const auto effect_in = [](const char* text, const char* option) {
    return line_of(explain(parse_settings(text)), option).effect;
  };
  EXPECT_TRUE(
      contains(effect_in("garbage_collection_threshold:0.8", "garbage_collection_threshold"),
               "No effect until the process has a memory fraction below 1"));
  EXPECT_EQ(effect_in("backend:cudaMallocAsync,max_split_size_mb:64", "max_split_size_mb"),
            "No effect under backend:cudaMallocAsync.");
  EXPECT_TRUE(contains(effect_in("pinned_num_register_threads:8", "pinned_num_register_threads"),
                       "No effect without"));
}

TEST(Explain, WarnsOfExpandableSegmentsBesideASplitLimit) {
  const auto lines = explain(parse_settings("expandable_segments:True,max_split_size_mb:512"));
  EXPECT_TRUE(contains(line_of(lines, "expandable_segments").effect, "set only one of the two"));
}

TEST(Recommend, ExpandableSegments) {
  const Recommendation r = recommend("", 24_GiB);
  EXPECT_EQ(r.settings, "expandable_segments:True");
  EXPECT_TRUE(contains(r.reason, "sizes change from step to step"));
  EXPECT_FALSE(r.price.empty());
}

TEST(Recommend, ASplitLimitWhereTheUserSwitchedExpandableSegmentsOff) {
  EXPECT_EQ(recommend("expandable_segments:False", {}).settings, "max_split_size_mb:512");
}

TEST(Recommend, TheUsersOwnValueWins) {
  for (const char* text :
       {"expandable_segments:True", "max_split_size_mb:64", "backend:cudaMallocAsync"})
    EXPECT_EQ(recommend(text, {}).settings, "") << text;
}

TEST(Recommend, NoSplitLimitOnACardWithoutLargeBlocks) {
  EXPECT_EQ(recommend("expandable_segments:False", 900_MiB).settings, "");
}

TEST(Recommend, WhatItSaysCanBeSetBesideTheUsersText) {
  const std::string text = "large_segment_size_mb:600,expandable_segments:False";
  EXPECT_EQ(merged_environment_value(text, recommend(text, {}).settings),
            text + ",max_split_size_mb:600");
}

}  // namespace
}  // namespace headroom::allocator
