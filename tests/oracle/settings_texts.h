// Random texts for PYTORCH_CUDA_ALLOC_CONF: valid, nearly valid and garbage. The same seed gives
// the same texts.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"

namespace headroom::testing {

// Names of stream classes, for expandable_segments_reserve_by_class.
inline const std::string kClasses[] = {"loader", "b", "c_2"};

class SettingsTexts {
 public:
  explicit SettingsTexts(std::uint64_t seed) : random_(seed) {}

  std::string next() {
    if (one_in(25)) return garbage();
    std::string text;
    for (std::size_t n = below(5); n > 0; --n) {
      if (!text.empty()) text += separator(',');
      text += setting();
    }
    if (one_in(12)) text += ",";
    if (one_in(6)) mutate(text);
    if (one_in(5)) scatter_spaces(text);
    return text;
  }

  // With a backend somewhere, and often little else, so that it is often accepted.
  std::string next_with_backend() {
    std::string backend = pick({"backend", "backend ", "back end"}) + separator(':') +
                          pick({"native", "cudaMallocAsync", "cudaMallocAsync", " cudaMallocAsync",
                                "hipMallocAsync", "Native", "", "[native]"});
    if (one_in(3)) return backend;
    const std::string more = one_in(4) ? next() : setting();
    return one_in(2) ? backend + separator(',') + more : more + separator(',') + backend;
  }

  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_);
  }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::string pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

 private:
  // What the value of each option is, for the options of the version that judges.
  static std::map<std::string, int> kinds() {
    std::map<std::string, int> kinds = {{"large_segment_size_mb", 5},
                                        {"max_split_size_mb", 0},
                                        {"max_non_split_rounding_mb", 0},
                                        {"garbage_collection_threshold", 1},
                                        {"per_process_memory_fraction", 1},
                                        {"roundup_power2_divisions", 2},
                                        {"expandable_segments", 3},
                                        {"release_lock_on_cudamalloc", 3},
                                        {"release_lock_on_hipmalloc", 3},
                                        {"graph_capture_record_stream_reuse", 3},
                                        {"pinned_use_cuda_host_register", 3},
                                        {"pinned_use_hip_host_register", 3},
                                        {"pinned_use_background_threads", 3},
                                        {"pinned_num_register_threads", 4},
                                        {"pinned_reserve_segment_size_mb", 0},
                                        {"pinned_free_catch_all", 3},
                                        {"throw_on_cudamalloc_oom", 3},
                                        {"pinned_max_round_threshold_mb", 0},
                                        {"pinned_max_cached_size_mb", 0},
                                        {"expandable_segments_reserve", 6},
                                        {"expandable_segments_reserve_by_class", 7}};
    for (const auto& info : allocator::options())
      if (info.since > allocator::default_version().minor) kinds.erase(std::string(info.name));
    return kinds;
  }

  std::string setting() {
    static const std::map<std::string, int> kKinds = kinds();
    auto chosen = std::next(kKinds.begin(), static_cast<std::ptrdiff_t>(below(kKinds.size())));
    std::string name = chosen->first;
    if (one_in(60)) mutate(name);
    if (one_in(60))
      name = pick({"expandable_segments_handle_type", "throw_on_cudamalloc_oom", "max_split_size",
                   "expandable_segments_reserve", "backends", ""});
    const int kind = one_in(40) ? static_cast<int>(below(5)) : chosen->second;
    return name + separator(':') + value(kind);
  }

  std::string value(int kind) {
    const bool odd = one_in(8);
    switch (kind) {
      case 0:
        return odd ? number_with_a_twist() : std::to_string(1 + below(one_in(2) ? 60 : 2000) + 10);
      case 1:
        return odd ? pick({"0", "1", "1.0", "0.0", "-0.0", "-0.5", "1.5", "nan", "inf", "1e-400",
                           "0x1p-1", "0x1p-1074", ".5", "5e-1x", "", "+0.25", "1e-310",
                           "0.999999999999999999"})
                   : "0." + std::to_string(1 + below(999));
      case 2:
        return roundup(odd);
      case 5:  // not beyond 8 EiB: see SizesBeyondBytesAreTheLargest
        return odd ? pick({"0", "10", "11", "19", "21", "40MB", "1e3", "0x40", "64.9", "", "[64]"})
                   : std::to_string(11 + below(60));
      case 6:
        return reserve(odd);
      case 7:
        return reserves(odd);
      case 3:
        return odd ? pick({"true", "TRUE", "1", "0", "false", "yes", "", "[True]", "\"True\"",
                           "True "})
                   : pick({"True", "False"});
      default:
        return odd ? pick({"0", "3", "256", "-1", "128x", "", "1e2"})
                   : std::to_string(1 << below(8));
    }
  }

  std::string number_with_a_twist() {
    return pick({"0",
                 "10",
                 "11",
                 "19",
                 "20",
                 "21",
                 "-1",
                 "-600",
                 "+512",
                 "512MB",
                 "512GB",
                 "1e3",
                 "0x40",
                 "64.9",
                 "'64'",
                 "18446744073709551615",
                 "18446744073709551616",
                 "17592186044415",
                 "17592186044416",
                 "8796093022207",
                 "8796093022208",
                 "99999999999999999999",
                 "",
                 "mb",
                 "[64]",
                 "~64"});
  }

  std::string roundup(bool odd) {
    if (one_in(3))
      return odd ? pick({"0", "3", "-1", "-9223372036854775808", "8x", "", ">", "["})
                 : std::to_string(1 << below(6));
    std::string list = "[";
    for (std::size_t n = below(6); n > 0; --n) {
      if (list.size() > 1) list += separator(',');
      list += odd && one_in(4) ? pick({"0", "3", "-1", "x", ">", "", "9223372036854775808"})
              : one_in(8)      ? ">"
                               : std::to_string(std::uint64_t{1} << below(18));
      list += separator(':');
      list += odd && one_in(4) ? pick({"3", "-1", "x", "", "-9223372036854775808"})
                               : pick({"0", "1", "2", "4", "8", "16"});
    }
    if (odd && one_in(3)) list += ",";
    return odd && one_in(4) ? list : list + "]";
  }

  std::string reserve(bool odd) {
    if (odd)
      return pick({"0", "-1", "nan", "inf", "1e400", "40g", "40GB", "G", "0G", "x", "", "0x1p-2",
                   "0x1p3G", "+2", "1e20G", "1e-310", "0.5 G", "[1]", "1e300"});
    return one_in(2) ? "0." + std::to_string(1 + below(999)) : std::to_string(1 + below(90)) + "G";
  }

  std::string reserves(bool odd) {
    std::string list = "[";
    for (std::size_t n = below(4); n > 0; --n) {
      if (list.size() > 1) list += separator(',');
      list += kClasses[below(std::size(kClasses))] + separator(':') + reserve(odd && one_in(3));
    }
    return odd && one_in(4) ? list : list + "]";
  }

  std::string separator(char usual) {
    return one_in(60) ? pick({"", ":", ",", "[", "]", "=", "::", ",,", ";", " "})
                      : std::string(1, usual);
  }

  void mutate(std::string& text) {
    static const std::string kAlphabet = ":,[]>~ -+.0123456789aeTFm_\t\"";
    const char c = kAlphabet[below(kAlphabet.size())];
    const std::size_t at = below(text.size() + 1);
    if (at == text.size() || one_in(3)) {
      text.insert(at, 1, c);
    } else if (one_in(2)) {
      text[at] = c;
    } else {
      text.erase(at, 1);
    }
  }

  void scatter_spaces(std::string& text) {
    for (std::size_t n = 1 + below(4); n > 0; --n)
      text.insert(below(text.size() + 1), pick({" ", "\t", "\n", "  ", "\r", "\v", "\f"}));
  }

  std::string garbage() {
    std::string text;
    for (std::size_t n = below(20); n > 0; --n) mutate(text);
    return text;
  }

  std::mt19937_64 random_;
};

}  // namespace headroom::testing
