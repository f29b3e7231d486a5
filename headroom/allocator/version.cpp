#include "headroom/allocator/version.h"

#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::allocator {
namespace {

constexpr Version kTorch211{
    .minor = 11,
    .torch = "2.11",
    .smallest_block = Bytes{512},
    .largest_small = Bytes{1 << 20},
    .small_segment = Bytes{2 << 20},
    .large_segment_below = Bytes{10 << 20},
    .large_rounding = Bytes{2 << 20},
    .largest_unsplit_rest = Bytes{1 << 20},
    .spare_address_divisor = 8,
    .tries_beyond_range = true,
    .pools_are_captures = true,
    .rounds_fraction = false,
    .ties = TieRule::lowest_address,
    .refusal_end = RefusalEnd::advises_expandable_segments,
};

constexpr Version like(Version other, int minor, std::string_view torch) {
  other.minor = minor;
  other.torch = torch;
  return other;
}

constexpr Version kTorch212 = [] {
  Version version = like(kTorch211, 12, "2.12");
  version.ties = TieRule::oldest_block;
  return version;
}();

constexpr Version kTorch213 = [] {
  Version version = like(kTorch211, 13, "2.13");
  version.pools_are_captures = false;
  version.rounds_fraction = true;
  version.ties = TieRule::oldest_segment;
  return version;
}();

constexpr Version kTorch214 = [] {
  Version version = like(kTorch213, 14, "2.14");
  version.refusal_end = RefusalEnd::bare;
  return version;
}();

constexpr Version kTorch215 = [] {
  Version version = like(kTorch214, 15, "2.15");
  version.refusal_end = RefusalEnd::speaks_of_address_space;
  version.tries_beyond_range = false;
  return version;
}();

constexpr Version kVersions[] = {kTorch211, kTorch212, kTorch213, kTorch214, kTorch215};

#ifndef HEADROOM_TORCH_MINOR
#define HEADROOM_TORCH_MINOR 11
#endif

}  // namespace

std::span<const Version> versions() {
  return kVersions;
}

const Version& version_named(std::string_view torch) {
  std::vector<std::string> names;
  for (const Version& version : kVersions) {
    if (torch == version.torch || torch.starts_with(std::string(version.torch) + '.'))
      return version;
    names.emplace_back(version.torch);
  }
  throw UsageError(expectation("allocator",
                               "a PyTorch whose allocator is modelled (" + join(names, ", ") + ")",
                               torch, "the nearest of them"));
}

const Version& default_version() {
  static_assert(HEADROOM_TORCH_MINOR >= kVersions[0].minor &&
                HEADROOM_TORCH_MINOR <= std::end(kVersions)[-1].minor);
  return kVersions[HEADROOM_TORCH_MINOR - kVersions[0].minor];
}

}  // namespace headroom::allocator
