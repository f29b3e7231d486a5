#include "headroom/gpu/reduction.h"

#include <algorithm>
#include <bit>

#include "headroom/gpu/detail/divided_up.h"

namespace headroom::gpu {
namespace {

using detail::divided_up;

constexpr std::int64_t kThreads = 512, kWarp = 32;
constexpr std::int64_t kFewest = 16, kMost = 256;  // elements per thread
constexpr std::int64_t kCounter = 4;

std::int64_t power_of_two(std::int64_t most, std::int64_t limit) {
  const auto below = std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(most, 1)));
  return std::min(static_cast<std::int64_t>(below), limit);
}

}  // namespace

ReductionMemory memory_of(const Reduction& of, const DeviceProfile& chip) {
  if (chip.multiprocessors == 0 || of.results <= 0) return {};
  const std::int64_t vector = of.innermost ? 1 : of.at_once;  // neighbouring results of a thread
  const std::int64_t across = of.innermost ? of.elements / of.at_once : of.results / vector;
  const std::int64_t along = of.innermost ? of.results : of.elements;

  const std::int64_t limit = kThreads / vector;
  std::int64_t width = std::min(power_of_two(across, limit), kWarp);
  const std::int64_t height = std::min(power_of_two(along, limit), limit / width);
  width = std::min(power_of_two(across, limit), limit / height);

  std::int64_t for_one = divided_up(of.elements, of.innermost ? width : 1);  // elements per thread
  const std::int64_t results_of_block = of.innermost ? 1 : width;
  if (for_one < std::min(height * kFewest, kMost)) return {};  // rows of threads share no result
  for_one = divided_up(of.elements, (of.innermost ? width : 1) * height);
  const std::int64_t blocks = divided_up(of.results / vector, results_of_block);
  const std::int64_t wanted =
      chip.multiprocessors * (chip.threads_of_multiprocessor / (width * height));
  if (for_one < kMost || blocks > wanted || blocks == 0) return {};

  const std::int64_t shares =
      std::max(std::min(divided_up(wanted, blocks), divided_up(for_one, kFewest)),
               divided_up(for_one, kMost));
  if (shares <= 1) return {};
  return {
      .parts = Bytes{of.accumulator * of.results * shares * (of.innermost ? 1 : width * vector)},
      .counters = Bytes{kCounter * blocks}};
}

std::int64_t layer_norm_partial_rows(std::int64_t rows, std::int64_t columns,
                                     const DeviceProfile* chip) {
  constexpr int kOfA100 = 108;
  const int multiprocessors =
      chip == nullptr || chip->multiprocessors == 0 ? kOfA100 : chip->multiprocessors;
  if (rows <= 64 * 1024 || columns / 32 >= multiprocessors / 2) return 0;
  return std::min(divided_up(rows, 32), 32 * 1024 / divided_up(columns, 32));
}

Reduction sum_of_rows(std::int64_t rows, std::int64_t columns) {
  return {.results = columns,
          .elements = rows,
          .innermost = columns == 1,
          .at_once = columns % 4 == 0   ? 4
                     : columns % 2 == 0 ? 2
                                        : 1,
          .accumulator = 4};
}

}  // namespace headroom::gpu
