// `headroom doctor`: which of all reasons it is that GPU work does not go, and what to try.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headroom/allocator/version.h"
#include "headroom/base/file.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json check(const Outcome& outcome, const std::string& name) {
  const Json json = outcome.json();
  for (const Json& check : json["checks"])
    if (check["name"] == name) return check;
  ADD_FAILURE() << "no check '" << name << "' in " << outcome.out;
  return {};
}

Outcome doctor(const World& world) {
  return world.headroom({"doctor", "--json"});
}

// A wheel as pip unpacks it, as far as it is read.
void torch(World& world, const std::string& version_py) {
  world.folder().write("torch/version.py", version_py);
}
constexpr const char* kCudaWheel =
    "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n";

World& healthy(World& world) {
  Json good = card("24GiB");
  good["persistence"] = true;
  world.driver(machine({good}));
  torch(world, kCudaWheel);
  return world;
}

// headroom alone, without its engine beside it: no test here depends on how fast LibTorch starts.
Outcome doctor_of_the_core(const World& world) {
  const std::string alone = world.path("headroom");
  std::filesystem::copy_file(HEADROOM_BINARY, alone);
  return world.run({alone, "doctor", "--json"});
}

TEST(Doctor, HasEveryKeyOfTheContractAndOnlyThreeAnswers) {
  const World world;
  const Json json = doctor(world).json();
  std::set<std::string> names;
  for (const Json& check : json["checks"]) {
    for (const char* key : {"name", "status", "found", "try"})
      EXPECT_TRUE(check.contains(key)) << check;
    const std::string status = check["status"];
    EXPECT_TRUE(status == "pass" || status == "warn" || status == "fail") << check;
    EXPECT_TRUE(status == "pass" || check["try"].is_string()) << "what to do: " << check;
    EXPECT_TRUE(names.insert(check["name"]).second) << check;
  }
  for (const char* name : {"driver", "cuda", "device order", "persistence", "allocator settings",
                           "CUDA_LAUNCH_BLOCKING", "hidden processes", "limits", "LibTorch"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Doctor, PassesAHealthyMachine) {
  World world;
  const Outcome outcome = doctor_of_the_core(healthy(world));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_EQ(check(outcome, "driver")["status"], "pass");
  EXPECT_EQ(check(outcome, "cuda")["status"], "pass") << outcome.out;
  EXPECT_THAT(check(outcome, "cuda")["found"].get<std::string>(), HasSubstr("cuda:0 is GPU 0"));
}

TEST(Doctor, WarnsOnAMachineWithoutAGpu) {
  const World world;
  const Outcome outcome = doctor(world);
  EXPECT_EQ(check(outcome, "driver")["status"], "warn");
  EXPECT_NE(check(outcome, "cuda")["status"], "pass");
  EXPECT_THAT(check(outcome, "driver")["found"].get<std::string>(), HasSubstr("no-driver.so"));
}

// ---- Why CUDA is unavailable ----

class WhyNoCuda : public ::testing::Test {
 protected:
  WhyNoCuda() { healthy(world_); }

  void expect(const std::string& reason, const std::string& to_try) const {
    const Outcome outcome = doctor(world_);
    const Json cuda = check(outcome, "cuda");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(cuda["status"], "fail");
    EXPECT_THAT(cuda["found"].get<std::string>(), HasSubstr(reason));
    EXPECT_THAT(cuda["try"].get<std::string>(), HasSubstr(to_try));
  }

  World world_;
};

TEST_F(WhyNoCuda, AnEmptyListHidesEveryCard) {
  world_.set("CUDA_VISIBLE_DEVICES", "");
  expect("CUDA_VISIBLE_DEVICES='': it is empty, which hides every card",
         "unset CUDA_VISIBLE_DEVICES");
}

TEST_F(WhyNoCuda, AListNamesNoCardOfThisMachine) {
  world_.set("CUDA_VISIBLE_DEVICES", "5");
  expect("there is no card 5", "list a GPU of this machine");
}

TEST_F(WhyNoCuda, TheDriverIsTooOldForTheWheel) {
  Json old = machine({card("24GiB")});
  old["cuda_driver"] = 12020;
  world_.driver(old);
  expect("the driver runs CUDA 12.2, torch is built for CUDA 13.0", "a newer driver");
}

TEST_F(WhyNoCuda, TorchIsBuiltForTheCpuOnly) {
  torch(world_, "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n");
  expect("torch 2.11.0+cpu is a build for the CPU only", "pip install torch");
}

TEST_F(WhyNoCuda, TorchIsBuiltForRocm) {
  torch(world_,
        "__version__ = '2.11.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n");
  expect("a ROCm build of torch: Headroom does not support", "NVIDIA");
}

TEST_F(WhyNoCuda, TheDriverSeesNoCard) {
  world_.driver(machine({}));
  expect("the driver sees no GPU", "nvidia-smi");
}

TEST_F(WhyNoCuda, TheDriverHangs) {
  world_.driver(machine({card("24GiB")}, {hang("nvmlInit*")}));
  const Outcome outcome = doctor(world_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(check(outcome, "driver")["status"], "fail");
  EXPECT_THAT(check(outcome, "driver")["found"].get<std::string>(), HasSubstr("has not answered"));
}

// ---- Settings ----

TEST(Doctor, WarnsOfLaunchBlocking) {
  World world;
  world.set("CUDA_LAUNCH_BLOCKING", "1");
  EXPECT_EQ(check(doctor(world), "CUDA_LAUNCH_BLOCKING")["status"], "warn");
  world.set("CUDA_LAUNCH_BLOCKING", "0");
  EXPECT_EQ(check(doctor(world), "CUDA_LAUNCH_BLOCKING")["status"], "pass");
}

TEST(Doctor, FailsForAllocatorSettingsThatPyTorchRefuses) {
  World world;
  world.set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10");
  const Outcome outcome = doctor(world);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(check(outcome, "allocator settings")["status"], "fail");
  world.set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512");
  const Json good = check(doctor(world), "allocator settings");
  EXPECT_EQ(good["status"], "pass");
  EXPECT_THAT(good["found"].get<std::string>(), HasSubstr("max_split_size_mb:512"));
}

TEST(Doctor, WarnsWhereNvidiaSmiAndCudaCountDifferently) {
  World world;
  Json slow = card("12GiB"), fast = card("24GiB");
  slow.update({{"name", "NVIDIA GeForce RTX 3060"}, {"capability", {8, 6}}});
  world.driver(machine({slow, fast}));
  const Json warned = check(doctor(world), "device order");
  EXPECT_EQ(warned["status"], "warn");
  EXPECT_EQ(warned["try"], "export CUDA_DEVICE_ORDER=PCI_BUS_ID");
  world.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_EQ(check(doctor(world), "device order")["status"], "pass");
}

TEST(Doctor, WarnsOfPersistenceThatIsOff) {
  World world;
  Json off = card("24GiB");
  off["persistence"] = false;
  world.driver(machine({off}));
  EXPECT_EQ(check(doctor(world), "persistence")["status"], "warn");
}

TEST(Doctor, WarnsOfHoldersThatCannotBeSeen) {
  World world;
  world.driver(machine({card("24GiB", {process(2'000'000'000, "1GiB")})}));
  const Json hidden = check(doctor(world), "hidden processes");
  EXPECT_EQ(hidden["status"], "warn");
  EXPECT_THAT(hidden["found"].get<std::string>(), HasSubstr("1 holder of GPU memory"));
}

bool has_engine() {
  return std::filesystem::exists(std::filesystem::path(HEADROOM_BINARY).parent_path() /
                                 "headroom-engine");
}

TEST(Doctor, StartsTheEngineWithTheTorchItFound) {
  if (!has_engine()) GTEST_SKIP() << "built without the engine";
  World world;
  world.set("HEADROOM_TORCH", HEADROOM_TORCH_DIR);
  const Json libtorch = check(doctor(world), "LibTorch");
  const std::string found = libtorch["found"];
  if (found.find("within 3 s") != std::string::npos) GTEST_SKIP() << "a slow disk: " << found;
  EXPECT_EQ(libtorch["status"], "pass") << libtorch;
  EXPECT_THAT(found, HasSubstr("torch " + std::string(allocator::default_version().torch) + "."));
}

TEST(Doctor, FailsForATorchOfAnotherVersion) {
  if (!has_engine()) GTEST_SKIP() << "built without the engine";
  World world;
  torch(world, "__version__ = '2.10.0+cu126'\ncuda = '12.6'\n");
  const Json libtorch = check(doctor(world), "LibTorch");
  EXPECT_EQ(libtorch["status"], "fail");
  EXPECT_THAT(libtorch["found"].get<std::string>(),
              HasSubstr("needs " + std::string(allocator::default_version().torch)));
  world.set("HEADROOM_TORCH", world.path("elsewhere"));
  EXPECT_THAT(check(doctor(world), "LibTorch")["found"].get<std::string>(),
              HasSubstr("no torch found"));
}

// ---- The report for a bug report ----

TEST(DoctorBundle, LeavesOutTheNamesOfUserAndMachine) {
  World world;
  world.set("USER", "erika-m");
  world.set("HOSTNAME", "ada-lab-7");
  world.set("CUDA_VISIBLE_DEVICES", "erika-m@ada-lab-7");
  world.driver(machine({card("24GiB")}));
  const std::string path = world.path("report.json");
  const Outcome outcome = world.headroom({"doctor", "--bundle", path});
  const std::string report = read_file(path).value_or("");
  EXPECT_TRUE(Json::parse(report)["checks"].is_array());
  EXPECT_THAT(outcome.out, HasSubstr("erika-m@ada-lab-7"));
  EXPECT_THAT(report, AllOf(Not(HasSubstr("erika-m")), Not(HasSubstr("ada-lab-7")),
                            Not(HasSubstr(world.folder().path().string()))));
}

TEST(DoctorBundle, IntoAnUnwritableFileIs73) {
  const World world;
  const Outcome outcome = world.headroom({"doctor", "--bundle", world.path("missing/report.json")});
  EXPECT_EQ(outcome.exit_code, 73);
  EXPECT_THAT(outcome.err, HasSubstr("missing/report.json"));
}

}  // namespace
}  // namespace headroom::testing
