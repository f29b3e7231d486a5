#include <algorithm>
#include <cmath>

#include "headroom/allocator/settings.h"
#include "headroom/base/text.h"

namespace headroom::allocator {
namespace {

// One sentence about an option's value, given the other settings.
using Sentence = std::string (*)(const Settings&);

struct Entry {
  OptionInfo info;
  bool native_only;  // backend:cudaMallocAsync ignores it
  std::string_view by_default;
  Sentence when_set;
};

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
    return "Expandable segments for requests above 1 MiB grow by pages of " + size +
           ", so up to that much is reserved and unused in each.";
  return "Requests above 1 and below 10 MiB are cut from segments of " + size +
         ". A larger segment means fewer cudaMalloc calls and more memory that stays unused.";
}

std::string max_split_set(const Settings& s) {
  return "Free blocks of " + to_string(*s.max_split_size) +
         " or more are never split. They stay whole for requests of that size and can be given "
         "back before a request fails. Smaller requests may need new segments.";
}

std::string max_non_split_set(const Settings& s) {
  if (!s.max_split_size) return "No effect without max_split_size_mb.";
  return "A request of max_split_size_mb or more takes a free block only if the block is less "
         "than " +
         to_string(s.max_non_split_rounding_size) +
         " larger. A larger value wastes memory inside blocks; a smaller one calls cudaMalloc more "
         "often.";
}

std::string gc_set(const Settings& s) {
  if (s.per_process_memory_fraction >= 1)
    return "No effect until the process has a memory fraction below 1 "
           "(per_process_memory_fraction or torch.cuda.set_per_process_memory_fraction).";
  return "Once the process has reserved more than " + percent(s.garbage_collection_threshold) +
         " of its limit, it gives back the large free blocks that were unused for longest" +
         (s.expandable_segments ? " (expandable segments never are)" : "") +
         ", at the price of later cudaMalloc calls.";
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
  return "Sizes are rounded up to the next of " + std::to_string(table[0]) +
         " equal steps between two powers of two, so that nearby sizes reuse one block. A block "
         "can be 1/" +
         std::to_string(table[0]) + " larger than its request.";
}

std::string expandable_set(const Settings& s) {
  if (s.max_split_size)
    return "Segments grow and shrink by pages. Together with max_split_size_mb, PyTorch 2.11 can "
           "reserve many times what it uses (pytorch issue 123548); set only one of the two.";
  return "Segments grow and shrink by pages of 2 MiB (small requests) or " +
         to_string(s.large_segment_size) +
         " in one range of addresses, so no memory is lost between segments; mapping pages takes "
         "time, and sharing tensors between processes needs Linux 5.6.";
}

std::string memory_fraction_set(const Settings& s) {
  return "The process may reserve at most " + percent(s.per_process_memory_fraction) +
         " of the card, and is out of memory beyond that even if the card has more.";
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

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"backend", "native or cudaMallocAsync", "native", "native",
        "which allocator serves device memory",
        "cudaMallocAsync ignores the other options for device memory; cannot change later"},
       false,
       "PyTorch's own allocator keeps freed blocks for reuse and gives them back only when it "
       "must.",
       backend_set},
      {{"large_segment_size_mb", "a whole number of MiB, above 10", "20", "40",
        "segment from which requests between 1 and 10 MiB are cut; page of expandable segments",
        "larger: fewer driver calls, more memory that is reserved but unused"},
       true,
       "Requests above 1 and below 10 MiB are cut from segments of 20 MiB.",
       large_segment_set},
      {{"max_split_size_mb", "a whole number of MiB, at least large_segment_size_mb (20)",
        "unlimited", "512",
        "larger free blocks are kept whole, so that they fit again and can be given back",
        "smaller requests may not use them and may need new segments"},
       true,
       "A free block of any size may be split for a smaller request.",
       max_split_set},
      {{"max_non_split_rounding_mb", "a whole number of MiB, at least large_segment_size_mb (20)",
        "20", "64", "how much larger than the request an unsplit block may be",
        "more: waste inside blocks; less: more calls of cudaMalloc"},
       true,
       "Matters only beside max_split_size_mb, and then equals large_segment_size_mb.",
       max_non_split_set},
      {{"garbage_collection_threshold", "a number above 0 and below 1", "off", "0.8",
        "above this part of the process's limit, blocks unused for long are given back",
        "later cudaMalloc calls; does nothing without a memory fraction below 1"},
       true,
       "Free blocks are given back only after a request has failed.",
       gc_set},
      {{"roundup_power2_divisions",
        "a power of two, or a list [MiB:divisions,...,>:divisions] of powers of two (divisions "
        "also 0)",
        "off", "8", "rounds sizes up more coarsely, so that nearby sizes reuse one block",
        "with N divisions, a block can be 1/N larger than its request"},
       true,
       "Sizes are rounded up to the next 512 bytes only.",
       roundup_set},
      {{"expandable_segments", kSwitch, "False", "True",
        "segments grow by pages instead of one cudaMalloc each: no memory lost between them",
        "mapping pages takes time; sharing tensors between processes needs Linux 5.6"},
       true,
       "Each segment is one cudaMalloc of fixed size, and free pieces of two segments never join.",
       expandable_set},
      {{"per_process_memory_fraction", "a number from 0 to 1", "1", "0.9",
        "limit of what the process reserves, as a part of the card",
        "out of memory beyond it, even if the card has more"},
       true,
       "The process may reserve the whole card.",
       memory_fraction_set},
      {{"release_lock_on_cudamalloc", kSwitch, "False", "True",
        "lets other threads allocate while one waits for cudaMalloc",
        "none known; saves no memory"},
       true,
       "While one thread waits for cudaMalloc, no other can allocate on that card.",
       release_lock_set},
      {{"graph_capture_record_stream_reuse", kSwitch, "False", "True",
        "reuses blocks of several streams during the capture of a CUDA graph", "a slower capture"},
       true,
       "Blocks used on several streams are not reused while a CUDA graph is captured.",
       graph_reuse_set},
      {{"pinned_use_cuda_host_register", kSwitch, "False", "True",
        "pins host memory by cudaHostRegister instead of cudaHostAlloc", "saves no device memory"},
       false,
       "Pinned host memory comes from cudaHostAlloc.",
       host_register_set},
      {{"pinned_num_register_threads", "a power of two, at most 128", "1", "8",
        "threads that map the pages of pinned host memory",
        "busier cores; needs pinned_use_cuda_host_register"},
       false,
       "One thread maps the pages of pinned host memory.",
       register_threads_set},
      {{"pinned_use_background_threads", kSwitch, "False", "True",
        "finds free pinned host blocks in a separate thread", "some time on another core"},
       false,
       "A request for pinned host memory first checks which blocks are free again.",
       background_threads_set},
      {{"pinned_reserve_segment_size_mb", "a whole number of MiB, above 0", "off", "256",
        "pins this much host memory at once for small requests", "the host memory stays taken"},
       false,
       "No pinned host memory is set aside in advance.",
       reserve_segment_set},
  };
  return all;
}

// The only default that depends on another option.
std::string default_value(const OptionInfo& info, const Settings& settings) {
  if (info.name != "max_non_split_rounding_mb") return std::string(info.default_value);
  return std::to_string(settings.large_segment_size.count >> 20);
}

// Every allocator has some unused reserved memory. Below this share, changing a setting gains less
// than it can cost. Our choice, not a measured threshold.
constexpr double kWorthAChange = 0.15;

bool sets(const std::vector<NamedValue>& named, std::string_view option) {
  return std::any_of(named.begin(), named.end(),
                     [&](const NamedValue& value) { return value.option == option; });
}

std::string what_was_seen(const Facts& facts) {
  if (facts.reserved_unused_share >= kWorthAChange) {
    std::string seen = percent(facts.reserved_unused_share) + " of reserved memory is unused";
    return facts.variable_lengths ? seen + " and sizes change from step to step" : seen;
  }
  return "sizes change from step to step";
}

Recommendation recommend_expandable(const Facts& facts) {
  return {"expandable_segments:True",
          "Because " + what_was_seen(facts) +
              ", segments that grow by pages can hold requests that fixed segments cannot.",
          "The first steps map pages and take a little longer; a driver that cannot map memory "
          "(some virtual GPUs) refuses it."};
}

Recommendation leave(std::string reason) {
  return {"", std::move(reason), ""};
}

Recommendation recommend_max_split(const Facts& facts, const Settings& user,
                                   std::string_view why_not_expandable) {
  const Bytes size = std::max(Bytes{512 << 20}, user.large_segment_size);
  if (facts.card_total && *facts.card_total < 2 * size)
    return leave("On " + to_string(*facts.card_total) + " few blocks are larger than " +
                 to_string(size) + ", and " + std::string(why_not_expandable) + ".");
  return {"max_split_size_mb:" + std::to_string(size.count >> 20),
          "Because " + what_was_seen(facts) + " and " + std::string(why_not_expandable) +
              ", keeping large blocks whole lets them fit again or be given back.",
          "Requests below " + to_string(size) +
              " cannot use larger free blocks and may need segments of their own."};
}

}  // namespace

const std::vector<OptionInfo>& options() {
  static const std::vector<OptionInfo> infos = [] {
    std::vector<OptionInfo> out;
    for (const Entry& entry : entries()) out.push_back(entry.info);
    return out;
  }();
  return infos;
}

std::vector<Explanation> explain(const Settings& settings) {
  const std::vector<NamedValue> changed = named_options(to_string(settings));
  std::vector<Explanation> lines;
  for (const Entry& entry : entries()) {
    Explanation line{std::string(entry.info.name), default_value(entry.info, settings),
                     std::string(entry.by_default), true};
    for (const NamedValue& named : changed) {
      if (named.option != entry.info.name) continue;
      line = {named.option, named.value, entry.when_set(settings), false};
    }
    if (entry.native_only && settings.backend != Backend::native)
      line.effect = "No effect under backend:cudaMallocAsync.";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<Explanation> explain(std::string_view text) {
  return explain(parse_settings(text));
}

Recommendation recommend(const Facts& facts) {
  const Settings user = parse_settings(facts.user_text);
  const std::vector<NamedValue> given = named_options(facts.user_text);
  if (user.backend != Backend::native)
    return leave(
        "With backend:cudaMallocAsync the driver keeps the blocks; nothing here changes it.");
  if (user.expandable_segments)
    return leave("expandable_segments:True is already set, and no setting helps more.");
  if (user.max_split_size)
    return leave(
        "You set max_split_size_mb, and PyTorch 2.11 wastes memory with both options together.");
  if (!facts.variable_lengths && facts.reserved_unused_share < kWorthAChange)
    return leave("Sizes do not change and little reserved memory is unused: nothing to gain.");
  if (sets(given, "expandable_segments"))
    return recommend_max_split(facts, user, "you switched expandable segments off");
  if (facts.maps_memory == false)
    return recommend_max_split(facts, user, "the driver cannot map memory");
  if (facts.cuda_graphs)
    return recommend_max_split(facts, user,
                               "2.11 can free expandable memory that a CUDA graph still uses");
  if (facts.shares_tensors)
    return recommend_max_split(facts, user,
                               "expandable memory is harder to share between processes");
  return recommend_expandable(facts);
}

}  // namespace headroom::allocator
