#include "headroom/profile/profile.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/profile/profiler.h"

namespace headroom::profile {
namespace {

using namespace literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A linear layer that calls addmm, a range around it, and a workspace.
Profile written_by_hand() {
  Profile profile;
  const auto name = [&](const char* text) { return profile.names.number(text); };
  const auto add = [&](const char* called, CallKind kind, std::int32_t parent, std::int64_t start,
                       std::int64_t end, const char* module, Bytes device) {
    Call call;
    call.name = name(called);
    call.module = name(module);
    call.shapes = name("[[2, 3], [3, 4]]");
    call.kind = kind;
    call.parent = parent;
    call.start_ns = start;
    call.end_ns = end;
    call.device = call.kept = device;
    profile.calls.push_back(call);
  };
  add("forward", CallKind::range, -1, 0, 100'000, "", 0_B);
  add("aten::linear", CallKind::operation, 0, 10'000, 60'000, "h.0.fc", 0_B);
  add("aten::addmm", CallKind::operation, 1, 20'000, 40'000, "h.0.fc", 4_MiB);
  add("cuBLAS workspace", CallKind::allocation, 2, 30'000, 30'000, "h.0.fc", 8_MiB);
  add("aten::addmm", CallKind::operation, -1, 200'000, 300'000, "h.0.proj", 1_MiB);
  profile.has_device = profile.knows_modules = true;
  return profile;
}

ProfileRow row_of(const Profile& profile, const std::string& name,
                  GroupBy group = GroupBy::operation) {
  for (ProfileRow& row : rows(profile, {.row_limit = 0, .group_by = group}))
    if (row.name == name) return row;
  throw InternalError("no row " + name);
}

TEST(ProfileRows, CountAnAllocationForTheInnermostOperatorAndForItsCallers) {
  const Profile profile = written_by_hand();
  const ProfileRow addmm = row_of(profile, "aten::addmm");
  EXPECT_EQ(addmm.calls, 2);
  EXPECT_EQ(addmm.self_bytes, 5_MiB);
  EXPECT_EQ(addmm.total_bytes, 13_MiB);
  EXPECT_EQ(row_of(profile, "aten::linear").self_bytes, 0_B);
  EXPECT_EQ(row_of(profile, "aten::linear").total_bytes, 12_MiB);
  EXPECT_EQ(row_of(profile, "forward").total_bytes, 12_MiB);
  EXPECT_EQ(row_of(profile, "cuBLAS workspace").calls, 1);
}

TEST(ProfileRows, TakeTheTimeOfWhatIsCalledOffTheCallersOwn) {
  const Profile profile = written_by_hand();
  EXPECT_DOUBLE_EQ(row_of(profile, "aten::linear").cpu_s, 50e-6);
  EXPECT_DOUBLE_EQ(row_of(profile, "aten::linear").self_cpu_s, 30e-6);
  EXPECT_DOUBLE_EQ(row_of(profile, "forward").self_cpu_s, 50e-6);
}

TEST(ProfileRows, AddUpModulesWithThoseInsideThem) {
  const Profile profile = written_by_hand();
  EXPECT_EQ(row_of(profile, "h.0.fc", GroupBy::module).self_bytes, 12_MiB);
  EXPECT_EQ(row_of(profile, "h.0", GroupBy::module).self_bytes, 0_B);
  EXPECT_EQ(row_of(profile, "h.0", GroupBy::module).total_bytes, 13_MiB);
  EXPECT_EQ(row_of(profile, "", GroupBy::module).total_bytes, 13_MiB);
  EXPECT_EQ(row_of(profile, "", GroupBy::module).calls, 1);  // the range
}

TEST(ProfileRows, AreSortedByTheFigureOrByPyTorchsNameOfIt) {
  const Profile profile = written_by_hand();
  EXPECT_EQ(rows(profile, {.sort_by = "calls"}).front().name, "aten::addmm");
  EXPECT_EQ(rows(profile, {.sort_by = "self_cpu_time_total"}).front().name, "aten::addmm");
  EXPECT_EQ(rows(profile, {.sort_by = "self_cuda_memory_usage"}).front().name, "cuBLAS workspace");
  EXPECT_EQ(rows(profile, {.row_limit = 2}).size(), 2U);
  EXPECT_THROW((void)rows(profile, {.sort_by = "self_byte"}), UsageError);
}

TEST(ProfileRows, TakeEveryListedKeyAndNoOther) {
  for (const std::string& key : sort_keys())
    EXPECT_EQ(rows({}, {.sort_by = key}).size(), 0U) << key;
  EXPECT_THROW((void)rows({}, {.sort_by = "self_byte"}), UsageError);
}

TEST(ProfileRows, OfEqualFiguresComeByTheOthersAndByCallsLast) {
  Profile profile = written_by_hand();
  for (Call& call : profile.calls) call.device = call.kept = 0_B;
  profile.calls[1].device_s = 1;
  const std::vector<ProfileRow> sorted = rows(profile);
  EXPECT_EQ(sorted[0].name, "aten::linear");  // by its time on the device
  EXPECT_EQ(sorted[1].name, "forward");
  EXPECT_EQ(sorted[2].name, "aten::addmm");  // two calls
}

// aten::mean calls aten::mean.dim: PyTorch's table has one call.
TEST(WithoutRepeatedCalls, JoinsACallWithTheOnlyOneThatItMakesOfItsOwnName) {
  Profile profile = written_by_hand();
  profile.calls[1].name = profile.calls[2].name;
  const Profile joined = without_repeated_calls(profile);
  EXPECT_EQ(joined.calls.size(), 4U);
  const ProfileRow addmm = row_of(joined, "aten::addmm");
  EXPECT_EQ(addmm.calls, 2);
  EXPECT_EQ(addmm.self_bytes, 5_MiB);
  EXPECT_EQ(addmm.total_bytes, 13_MiB);
  EXPECT_DOUBLE_EQ(addmm.self_cpu_s, 150e-6);
}

TEST(ProfileTable, FitsItsWidthAndCutsLongNamesInTheMiddle) {
  Profile profile = written_by_hand();
  profile.calls[1].name =
      profile.names.number("autograd::engine::evaluate_function: ScaledDotProductBackward0");
  for (const std::size_t width : {80U, 100U}) {
    const std::string text = table(profile, {.group_by = GroupBy::operation}, width);
    const std::string figures = text.substr(0, text.find(" by self_bytes"));
    for (const std::string_view line : split(figures, '\n')) EXPECT_LE(line.size(), width) << line;
    EXPECT_THAT(text, AllOf(HasSubstr("autograd"), HasSubstr("Backward0"), HasSubstr("..")));
  }
}

TEST(ProfileTable, ShowsShapesUnderTheNameAndLeavesEmptyColumnsOut) {
  const std::string text = table(written_by_hand(), {.group_by = GroupBy::shape});
  EXPECT_THAT(text, HasSubstr("  [2,3] [3,4]\n"));
  EXPECT_THAT(text, Not(HasSubstr("CPU mem ")));
}

TEST(ProfileTable, KeepsTheColumnThatItIsSortedBy) {
  Profile profile = written_by_hand();
  for (Call& call : profile.calls) call.cpu = 1_MiB;
  EXPECT_THAT(table(profile, {}, 70), Not(HasSubstr("self kept")));
  EXPECT_THAT(table(profile, {.sort_by = "self_kept_bytes"}, 70), HasSubstr("self kept"));
}

TEST(ProfileTable, CountsTheRowsAndBytesThatItDoesNotShow) {
  Profile profile = written_by_hand();
  profile.calls[0].cpu = 2_MiB;
  EXPECT_THAT(table(profile, {.row_limit = 1}),
              HasSubstr("1 of 4 rows by self_bytes; allocated in all: 13.0 MiB on devices, 2.0 MiB "
                        "on the CPU\n"));
}

TEST(ProfileChrome, IsJsonWithCallsAndMemoryCounters) {
  Profile profile = written_by_hand();
  profile.samples.push_back(
      {.time_ns = 25'000, .device = profile.names.number("cuda:0"), .allocated = 4_MiB});
  const std::string path = ::testing::TempDir() + "profile.json";
  write_chrome(profile, path);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const Json events = parse_json(text.str(), path).at("traceEvents");
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[2].at("args").at("self_bytes"), 4 << 20);
  EXPECT_EQ(events[2].at("dur"), 20.0);
  EXPECT_EQ(events[4].at("name"), "memory cuda:0");
  EXPECT_EQ(events[4].at("args").at("allocated"), 4 << 20);
}

// ---- On the CPU, by kineto ----

TEST(Profiler, ReadsTheBytesAndShapesOfTheCpu) {
  const at::Tensor a = torch::ones({256, 512}), b = torch::ones({512, 128});
  Profiler profiler;
  const at::Tensor product = torch::mm(a, b);
  const Profile profile = profiler.end();
  const ProfileRow mm = row_of(profile, "aten::mm");
  EXPECT_EQ(mm.calls, 1);
  EXPECT_EQ(mm.cpu_bytes, 128_KiB);
  EXPECT_EQ(mm.shapes, "[[256, 512], [512, 128]]");
  EXPECT_EQ(mm.device_s, std::nullopt);
  EXPECT_FALSE(profile.simulated_time);
}

// Of one result of PyTorch's: the durations of its own events, by name.
TEST(Profiler, HasTheTimesOfKinetosEvents) {
  namespace kineto = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     true, true);
  kineto::prepareProfiler(config, {ActivityType::CPU});
  kineto::enableProfiler(config, {ActivityType::CPU});
  const at::Tensor x = torch::ones({64, 64}, torch::requires_grad());
  torch::linear(x, x).relu().sum().backward();
  const auto result = kineto::disableProfiler();
  const Profile profile = read_profile(*result);
  std::map<std::string, std::pair<int, double>> events;  // how many, and seconds
  for (const auto& event : result->events()) {
    ++events[event.name()].first;
    events[event.name()].second += double(event.durationNs()) / 1e9;
  }
  int compared = 0;
  for (const ProfileRow& row : rows(profile, {.row_limit = 0})) {
    const auto& [count, seconds] = events.at(row.name);
    if (row.calls != count) continue;  // joined with calls of its own name
    EXPECT_NEAR(row.cpu_s, seconds, 0.02 * seconds) << row.name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

TEST(Profiler, KnowsRangesAndTheBackwardPassOfAModule) {
  const at::Tensor weight = torch::ones({32, 32}, torch::requires_grad());
  Profiler profiler;
  {
    RECORD_USER_SCOPE("my forward");
    const ModuleRange module("h.0.fc");
    torch::mm(weight, weight).sum().backward();
  }
  const Profile profile = profiler.end();
  EXPECT_EQ(row_of(profile, "my forward").kind, CallKind::range);
  EXPECT_EQ(row_of(profile, "my forward").calls, 1);
  const ProfileRow module = row_of(profile, "h.0.fc", GroupBy::module);
  EXPECT_GE(module.self_cpu_bytes, 4_KiB * 3);  // the product, and a gradient of each factor
}

TEST(Profiler, LeavesTheProfilerOffAfterAnException) {
  const auto fails = [] {
    const Profiler profiler;
    (void)torch::mm(torch::ones({2, 3}), torch::ones({2, 3}));
  };
  EXPECT_THROW(fails(), c10::Error);
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
  Profiler another;
  (void)torch::ones({2});
  EXPECT_EQ(row_of(another.end(), "aten::ones").calls, 1);
}

TEST(Profiler, SaysThatAnotherProfilerEndedIt) {
  Profiler profiler;
  (void)torch::autograd::profiler::disableProfiler();
  EXPECT_THROW((void)profiler.end(), UsageError);
}

TEST(Profiler, RefusesASecondOneInsideAndAnEndTwiceOrOnAnotherThread) {
  Profiler profiler;
  EXPECT_THROW(const Profiler second, UsageError);
  std::thread([&] { EXPECT_THROW((void)profiler.end(), UsageError); }).join();
  (void)profiler.end();
  EXPECT_THROW((void)profiler.end(), UsageError);
}

}  // namespace
}  // namespace headroom::profile
