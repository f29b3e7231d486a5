// A card with settings, and the figures that most tests of the allocator compare.
#pragma once

#include <string_view>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::allocator::testing {

// Of 2.11, unless another is named.
inline CachingAllocator card_with(std::string_view settings, Bytes capacity = kUnlimited,
                                  std::string_view torch = "2.11") {
  const Version& version = version_named(torch);
  return CachingAllocator(
      {.capacity = capacity, .settings = parse_settings(settings, version), .version = version});
}
inline Bytes reserved(const CachingAllocator& card) {
  return Bytes{card.statistics().reserved_bytes.all.current};
}
inline Bytes allocated(const CachingAllocator& card) {
  return Bytes{card.statistics().allocated_bytes.all.current};
}
inline Bytes active(const CachingAllocator& card) {
  return Bytes{card.statistics().active_bytes.all.current};
}

}  // namespace headroom::allocator::testing
