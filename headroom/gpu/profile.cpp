#include "headroom/gpu/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/gpu/detail/embedded.h"

namespace headroom::gpu {
namespace {

template <typename T>
std::optional<T> value_or_none(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return {};
  return at->get<T>();
}

std::optional<Bytes> bytes_or_none(const Json& object, const char* key, std::int64_t unit) {
  const auto count = value_or_none<std::int64_t>(object, key);
  if (!count) return {};
  return Bytes{*count * unit};
}

std::vector<AttentionKernel> attention_from(const Json& json) {
  std::vector<AttentionKernel> kernels;
  for (const std::string& name : json.value("preference", std::vector<std::string>{})) {
    AttentionKernel kernel{.name = name, .dtypes = {}, .max_head_dim = {}, .allows_mask = {}};
    if (const auto rule = json.find(name); rule != json.end() && rule->is_object()) {
      kernel.dtypes = value_or_none<std::vector<std::string>>(*rule, "dtypes")
                          .value_or(std::vector<std::string>{});
      kernel.max_head_dim = value_or_none<int>(*rule, "max_head_dim");
      kernel.allows_mask = value_or_none<bool>(*rule, "allows_mask");
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::vector<DeviceProfile> load_profiles() {
  const Json file = parse_json(embedded::profiles_json(), "profiles.json");
  std::vector<DeviceProfile> profiles;
  for (const auto& [key, json] : file.at("profiles").items()) {
    DeviceProfile profile;
    profile.key = key;
    profile.capabilities = json.at("compute_capability").get<std::vector<std::string>>();
    profile.context = bytes_or_none(json, "context_mib", 1 << 20);
    profile.cublas_workspace = bytes_or_none(json, "cublas_workspace_bytes", 1);
    profile.cublaslt_workspace = bytes_or_none(json, "cublaslt_workspace_bytes", 1);
    profile.multiprocessors = json.at("multiprocessors");
    profile.threads_of_multiprocessor = json.at("threads_of_multiprocessor");
    profile.attention = attention_from(json.at("attention"));
    const Json achievable = json.value("achievable", Json::object());
    profile.matmul_fraction = value_or_none<double>(achievable, "matmul_fraction");
    profile.bandwidth_fraction = value_or_none<double>(achievable, "bandwidth_fraction");
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

}  // namespace

const std::vector<DeviceProfile>& profiles() {
  static const auto& all = *new std::vector(load_profiles());  // never freed: cards point to it
  return all;
}

const DeviceProfile* find_profile(std::string_view key) {
  const auto found = std::find_if(profiles().begin(), profiles().end(),
                                  [&](const DeviceProfile& p) { return p.key == key; });
  return found == profiles().end() ? nullptr : &*found;
}

const DeviceProfile* profile_of_capability(int major, int minor) {
  const std::string wanted = std::to_string(major) + "." + std::to_string(minor);
  for (const DeviceProfile& profile : profiles())
    if (std::find(profile.capabilities.begin(), profile.capabilities.end(), wanted) !=
        profile.capabilities.end())
      return &profile;
  return nullptr;
}

}  // namespace headroom::gpu
