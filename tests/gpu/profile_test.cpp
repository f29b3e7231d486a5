// Figures of chips: each has a source, and a figure without a measurement is empty.

#include "headroom/gpu/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/json.h"
#include "headroom/gpu/detail/embedded.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

TEST(Profile, IsFoundByKeyAndByCapability) {
  ASSERT_NE(find_profile("ada"), nullptr);
  EXPECT_EQ(profile_of_capability(8, 9), find_profile("ada"));
  EXPECT_EQ(profile_of_capability(9, 0), find_profile("hopper"));
  EXPECT_EQ(find_profile("Ada"), nullptr);
  EXPECT_EQ(find_profile(""), nullptr);
  EXPECT_EQ(profile_of_capability(8, 91), nullptr);
  EXPECT_EQ(profile_of_capability(3, 5), nullptr);
}

TEST(Profile, NoTwoChipsShareACapability) {
  std::set<std::string> seen;
  for (const DeviceProfile& profile : profiles())
    for (const std::string& capability : profile.capabilities)
      EXPECT_TRUE(seen.insert(capability).second) << capability;
}

// PyTorch's CUDABlas workspace: 32 MiB on compute capability 9.0, else 2 x 4096 + 8 x 16 KiB
// (aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize, as 2.11.0's library has it).
TEST(Profile, CublasWorkspacesAreWhatPyTorchAsksFor) {
  EXPECT_EQ(find_profile("ada")->cublas_workspace, (2 * 4096 + 8 * 16) * 1_KiB);
  EXPECT_EQ(find_profile("ampere_dc")->cublas_workspace, (2 * 4096 + 8 * 16) * 1_KiB);
  EXPECT_EQ(find_profile("hopper")->cublas_workspace, 32_MiB);
  EXPECT_EQ(find_profile("blackwell")->cublas_workspace, (2 * 4096 + 8 * 16) * 1_KiB);
  EXPECT_EQ(find_profile("blackwell_dc")->cublas_workspace, (2 * 4096 + 8 * 16) * 1_KiB);
}

TEST(Profile, TheMathKernelIsAlwaysAvailableForAllShapes) {
  for (const DeviceProfile& profile : profiles()) {
    ASSERT_FALSE(profile.attention.empty()) << profile.key;
    std::set<std::string> names;
    for (const AttentionKernel& kernel : profile.attention) {
      EXPECT_TRUE(names.insert(kernel.name).second) << profile.key << " " << kernel.name;
      const bool takes_everything = kernel.dtypes.empty() && !kernel.max_head_dim;
      EXPECT_TRUE(takes_everything || kernel.name != "math") << profile.key;
    }
    EXPECT_TRUE(names.contains("math")) << profile.key;
  }
}

// flash-attention 2 needs an Ampere chip (sdp_utils.cpp, check_flash_attention_hardware_support).
TEST(Profile, FlashAttentionBeginsWithAmpere) {
  for (const DeviceProfile& profile : profiles()) {
    const bool has_flash =
        std::any_of(profile.attention.begin(), profile.attention.end(),
                    [](const AttentionKernel& kernel) { return kernel.name == "flash"; });
    const double capability = std::stod(profile.capabilities.at(0));
    EXPECT_EQ(has_flash, capability >= 8.0) << profile.key;
  }
}

TEST(Profile, FractionsAreFractionsAndSizesAreSizes) {
  for (const DeviceProfile& profile : profiles()) {
    for (const auto& fraction : {profile.matmul_fraction, profile.bandwidth_fraction})
      EXPECT_TRUE(!fraction || (*fraction > 0.3 && *fraction <= 1)) << profile.key;
    const Bytes context = profile.context.value_or(300_MiB);
    EXPECT_TRUE(context > 50_MiB && context < 2_GiB) << profile.key;
  }
}

TEST(Profile, EveryFigureHasASourceThatExists) {
  const Json file = parse_json(embedded::profiles_json(), "profiles.json");
  for (const auto& [key, profile] : file.at("profiles").items()) {
    for (const char* figure : {"context_mib", "cublas_workspace_bytes", "attention",
                               "multiprocessors", "threads_of_multiprocessor"}) {
      if (profile.at(figure).is_null()) continue;
      Json ids = profile.at("source").at(figure);
      if (ids.is_string()) ids = Json::array({ids});
      ASSERT_TRUE(ids.is_array() && !ids.empty()) << key << " " << figure;
      for (const Json& id : ids)
        EXPECT_TRUE(file.at("sources").contains(id.get<std::string>())) << key << " " << id;
    }
  }
}

}  // namespace
}  // namespace headroom::gpu
