#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "headroom/allocator/detail/settings_walk.h"
#include "headroom/allocator/settings.h"
#include "headroom/base/text.h"

namespace headroom::allocator {
namespace {

std::string percent(double part) {
  return std::to_string(std::lround(part * 100)) + " %";
}

std::string backend_set(const Settings&) {
  return "The driver's own pool (cudaMallocAsync) serves every request: it can give memory back "
         "sooner, but other options for device memory do nothing and blocks cannot be inspected.";
}

std::string large_segment_set(const Settings& s) {
  const std::string size = to_string(s.large_segment_size);
  if (s.expandable_segments)
    return fmt::format(
        "Expandable segments for requests above 1 MiB grow by pages of {}, so up to that much is "
        "reserved and unused in each.",
        size);
  return fmt::format(
      "Requests above 1 and below 10 MiB are cut from segments of {}. A larger segment means fewer "
      "cudaMalloc calls and more memory that stays unused.",
      size);
}

std::string max_split_set(const Settings& s) {
  return fmt::format(
      "Free blocks of {} or more are never split. They stay whole for requests of that size and "
      "can be given back before a request fails. Smaller requests may need new segments.",
      to_string(*s.max_split_size));
}

std::string max_non_split_set(const Settings& s) {
  if (!s.max_split_size) return "No effect without max_split_size_mb.";
  return fmt::format(
      "A request of max_split_size_mb or more takes a free block only if the block is less than {} "
      "larger. A larger value wastes memory inside blocks; a smaller one calls cudaMalloc more "
      "often.",
      to_string(s.max_non_split_rounding_size));
}

std::string gc_set(const Settings& s) {
  if (s.per_process_memory_fraction >= 1)
    return "No effect until the process has a memory fraction below 1 "
           "(per_process_memory_fraction or torch.cuda.set_per_process_memory_fraction).";
  return fmt::format(
      "Once the process has reserved more than {} of its limit, it gives back the large free "
      "blocks that were unused for longest{}, at the price of later cudaMalloc calls.",
      percent(s.garbage_collection_threshold),
      s.expandable_segments ? " (expandable segments never are)" : "");
}

std::string roundup_set(const Settings& s) {
  const auto& table = s.roundup_power2_divisions;
  if (std::all_of(table.begin(), table.end(), [](auto divisions) { return divisions <= 1; }))
    return "No effect: 0 and 1 division are the plain rounding to 512 bytes.";
  if (std::any_of(table.begin(), table.end(),
                  [&](auto divisions) { return divisions != table[0]; }))
    return "Sizes are rounded up to equal steps between two powers of two, so that nearby sizes "
           "reuse one block. The number of steps depends on the size. The memory that rounding "
           "adds is wasted.";
  return fmt::format(
      "Sizes are rounded up to the next of {0} equal steps between two powers of two, so that "
      "nearby sizes reuse one block. A block can be 1/{0} larger than its request.",
      table[0]);
}

std::string expandable_set(const Settings& s) {
  if (s.max_split_size)
    return "Segments grow and shrink by pages. Together with max_split_size_mb, PyTorch can "
           "reserve many times what it uses (pytorch issue 123548); set only one of the two.";
  return fmt::format(
      "Segments grow and shrink by pages of 2 MiB (small requests) or {} in one range of "
      "addresses, so no memory is lost between segments; mapping pages takes time, and sharing "
      "tensors between processes needs Linux 5.6.",
      to_string(s.large_segment_size));
}

std::string memory_fraction_set(const Settings& s) {
  return fmt::format(
      "The process may reserve at most {} of the card, and is out of memory beyond that even if "
      "the card has more.",
      percent(s.per_process_memory_fraction));
}

std::string release_lock_set(const Settings&) {
  return "Other threads can allocate while one waits for cudaMalloc; no memory is saved.";
}

std::string graph_reuse_set(const Settings&) {
  return "While a CUDA graph is captured, blocks used on several streams are reused as soon as the "
         "graph's order allows: a lower peak, a slower capture.";
}

std::string host_register_set(const Settings&) {
  return "Pinned host memory is allocated first and then registered, which blocks the driver for "
         "less time than cudaHostAlloc; no device memory is saved.";
}

std::string register_threads_set(const Settings& s) {
  if (!s.pinned_use_cuda_host_register)
    return "No effect without pinned_use_cuda_host_register:True.";
  return counted(static_cast<long long>(s.pinned_num_register_threads), "thread") +
         " map the pages of new pinned host memory: faster for large requests, but more cores are "
         "busy.";
}

std::string throw_on_oom_set(const Settings& s) {
  return fmt::format(
      "A request that would take the process beyond {} of the card is refused at once, even if "
      "cached memory could be released for it.",
      percent(s.per_process_memory_fraction));
}

std::string reserve_set(const Settings& s) {
  if (!s.expandable_segments) return "No effect without expandable_segments:True.";
  return "An expandable segment takes less address space, and a request larger than that is "
         "refused.";
}

std::string reserve_by_class_set(const Settings& s) {
  if (!s.expandable_segments) return "No effect without expandable_segments:True.";
  return "Expandable segments of streams that the program tagged with these classes take less "
         "address space.";
}

std::string catch_all_set(const Settings&) {
  return "Errors while pinned host memory is freed do not end the program.";
}

std::string round_threshold_set(const Settings& s) {
  return fmt::format(
      "Requests for pinned host memory above {} are not rounded up to a power of two: less host "
      "memory is wasted, fewer blocks fit again.",
      to_string(*s.pinned_max_round_threshold));
}

std::string cached_size_set(const Settings& s) {
  return fmt::format(
      "Pinned host blocks above {} return to the system when they are freed: less host memory "
      "stays pinned, allocation is slower.",
      to_string(*s.pinned_max_cached_size));
}

std::string background_threads_set(const Settings&) {
  return "A separate thread finds pinned host blocks that are free again: allocation is faster, "
         "and another core does some work.";
}

std::string reserve_segment_set(const Settings& s) {
  return to_string(s.pinned_reserve_segment_size) +
         " of host memory are pinned at once and serve small requests without the driver; they "
         "stay pinned until the process ends.";
}

constexpr std::string_view kSwitch = "exactly `True` or `False`";

// In printing order.
constexpr OptionInfo kInfos[] = {
    {"backend", "native or cudaMallocAsync", "native", false, backend_set},
    {"large_segment_size_mb", "a whole number of MiB, above 10", "40", true, large_segment_set},
    {"max_split_size_mb", "a whole number of MiB, at least large_segment_size_mb (20)", "512", true,
     max_split_set},
    {"max_non_split_rounding_mb", "a whole number of MiB, at least large_segment_size_mb (20)",
     "64", true, max_non_split_set},
    {"garbage_collection_threshold", "a number above 0 and below 1", "0.8", true, gc_set},
    {"roundup_power2_divisions",
     "a power of two, or a list [MiB:divisions,...,>:divisions] of powers of two (divisions also "
     "0)",
     "8", true, roundup_set},
    {"expandable_segments", kSwitch, "True", true, expandable_set},
    {"per_process_memory_fraction", "a number from 0 to 1", "0.9", true, memory_fraction_set},
    {"release_lock_on_cudamalloc", kSwitch, "True", true, release_lock_set},
    {"graph_capture_record_stream_reuse", kSwitch, "True", true, graph_reuse_set},
    {"pinned_use_cuda_host_register", kSwitch, "True", false, host_register_set},
    {"pinned_num_register_threads", "a power of two, at most 128", "8", false,
     register_threads_set},
    {"pinned_use_background_threads", kSwitch, "True", false, background_threads_set},
    {"pinned_reserve_segment_size_mb", "a whole number of MiB, above 0", "256", false,
     reserve_segment_set},
    {"throw_on_cudamalloc_oom", kSwitch, "True", true, throw_on_oom_set, 12},
    {"pinned_free_catch_all", kSwitch, "True", false, catch_all_set, 12},
    {"pinned_max_round_threshold_mb", "a whole number of MiB", "64", false, round_threshold_set,
     13},
    {"pinned_max_cached_size_mb", "a whole number of MiB", "64", false, cached_size_set, 13},
    {"expandable_segments_reserve", "a share of the card, or a number of GiB with the letter G",
     "0.5", true, reserve_set, 15},
    {"expandable_segments_reserve_by_class", "a list [class:share or GiB,...]", "[loader:4G]", true,
     reserve_by_class_set, 15},
};

Recommendation leave(std::string reason) {
  return {"", std::move(reason), ""};
}

}  // namespace

std::span<const OptionInfo> options() {
  return kInfos;
}

std::vector<Explanation> explain(const Settings& settings) {
  std::vector<Explanation> lines;
  for (const NamedValue& named : named_options(to_string(settings))) {
    const OptionInfo& info = detail::info_of(named.option);
    const bool is_ignored = info.native_only && settings.backend != Backend::native;
    lines.push_back(
        {named.option, named.value,
         is_ignored ? "No effect under backend:cudaMallocAsync." : info.effect(settings)});
  }
  return lines;
}

Recommendation recommend(std::string_view user_text, std::optional<Bytes> card_total) {
  const Settings user = parse_settings(user_text);
  if (user.backend != Backend::native)
    return leave(
        "With backend:cudaMallocAsync the driver keeps the blocks; nothing here changes it.");
  if (user.expandable_segments)
    return leave("expandable_segments:True is already set, and no setting helps more.");
  if (user.max_split_size)
    return leave("max_split_size_mb is set by you, and PyTorch wastes memory with both together.");
  if (!names_option(user_text, "expandable_segments"))
    return {"expandable_segments:True",
            "Because sizes change from step to step, segments that grow by pages will fit what "
            "fixed ones cannot.",
            "The first steps map pages and take a little longer; a driver that cannot map memory "
            "(some virtual GPUs) refuses it."};
  const std::string why_not_expandable = "you have expandable segments switched off";
  const Bytes size = std::max(Bytes{512 << 20}, user.large_segment_size);
  if (card_total && *card_total < 2 * size)
    return leave(fmt::format("On {} few blocks are larger than {}, and {}.", to_string(*card_total),
                             to_string(size), why_not_expandable));
  return {"max_split_size_mb:" + std::to_string(size.count >> 20),
          fmt::format("Because sizes change from step to step and {}, keeping large blocks whole "
                      "lets them fit again or be given back.",
                      why_not_expandable),
          fmt::format(
              "Requests below {} cannot use larger free blocks and may need segments of their own.",
              to_string(size))};
}

}  // namespace headroom::allocator
