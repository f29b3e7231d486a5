#include "tests/oracle/settings_dice.h"

#include <stdexcept>

#include "headroom/allocator/version.h"

namespace headroom::oracle {
namespace {

std::string decimals(double value) {
  return std::to_string(value).substr(0, 4);
}

std::string max_split(Dice& dice, std::int64_t least) {
  return "max_split_size_mb:" + std::to_string(dice.log_between(least, 1000));
}

// 0 only in a table; both it and 1 mean plain rounding.
std::string divisions(Dice& dice, bool in_table) {
  return std::to_string(dice.pick({in_table ? 0 : 1, 1, 2, 4, 8, 16, 32}));
}

// One number, or a table: "[256:1,512:2,1024:4,>:8]".
std::string roundup(Dice& dice) {
  const std::string name = "roundup_power2_divisions:";
  if (dice.one_in(2)) return name + divisions(dice, false);
  std::string table;
  std::uint64_t size = 1;
  while (true) {
    size <<= 1 + dice.below(4);
    if (size > 32768 || dice.one_in(5)) break;
    table += (table.empty() ? "" : ",") + std::to_string(size) + ":" + divisions(dice, true);
  }
  if (table.empty() || dice.one_in(2))
    table += (table.empty() ? ">:" : ",>:") + divisions(dice, true);
  return name + "[" + table + "]";
}

std::string garbage(Dice& dice) {
  return "garbage_collection_threshold:" + decimals(0.01 + 0.98 * dice.fraction());
}

std::string fraction(Dice& dice) {
  return "per_process_memory_fraction:" + decimals(0.2 + 0.79 * dice.fraction());
}

// Expandable segments are made of pages of this size, and a driver wants multiples of 2 MiB.
std::string large_segment(Dice& dice, std::int64_t largest, std::int64_t multiple) {
  const std::int64_t size = dice.log_between(11 + multiple - 1, largest);
  return "large_segment_size_mb:" + std::to_string(size / multiple * multiple);
}

std::string non_split(Dice& dice, std::int64_t least) {
  return "max_non_split_rounding_mb:" + std::to_string(dice.log_between(least, 600));
}

// The options that came after 2.11, for the version that judges.
std::string newer(Dice& dice) {
  const int minor = allocator::default_version().minor;
  std::string text;
  if (minor >= 12 && dice.one_in(3)) text += ",throw_on_cudamalloc_oom:True";
  if (minor >= 15 && dice.one_in(2))
    text += ",expandable_segments_reserve:" + (dice.one_in(2)
                                                   ? decimals(0.02 + 1.5 * dice.fraction())
                                                   : std::to_string(dice.log_between(1, 40)) + "G");
  return text;
}

// Every option half of the time. All sizes chosen go with all others, now or after a change.
std::string mixed(Dice& dice, bool at_start, bool with_max_split) {
  std::vector<std::string> chosen;
  if (dice.one_in(2)) chosen.push_back(large_segment(dice, 64, 2));
  if (dice.one_in(2)) chosen.push_back(non_split(dice, 65));
  if (dice.one_in(2) && with_max_split) chosen.push_back(max_split(dice, 65));
  if (dice.one_in(2)) chosen.push_back(roundup(dice));
  if (dice.one_in(2)) chosen.push_back(garbage(dice));
  if (dice.one_in(2) && at_start) chosen.push_back(fraction(dice));
  if (dice.one_in(2))
    chosen.push_back(dice.one_in(at_start ? 4 : 2) ? "expandable_segments:False"
                                                   : "expandable_segments:True");
  std::string text;
  for (const std::string& each : chosen) text += (text.empty() ? "" : ",") + each;
  return text;
}

}  // namespace

const std::vector<std::string>& class_names() {
  static const std::vector<std::string> names = {
      "defaults",      "max_split",          "roundup", "garbage", "expandable",
      "large_segment", "non_split_rounding", "mixed",   "changed", "newer"};
  return names;
}

std::string settings_for(const std::string& name, Dice& dice) {
  if (name == "defaults") return "";
  if (name == "max_split") return max_split(dice, 20);
  if (name == "roundup") return roundup(dice);
  if (name == "garbage") return garbage(dice) + "," + fraction(dice);
  if (name == "expandable") return "expandable_segments:True";
  if (name == "newer")
    return "expandable_segments:" + std::string(dice.one_in(4) ? "False" : "True") + newer(dice);
  if (name == "large_segment") {
    if (dice.one_in(3)) return large_segment(dice, 200, 2) + ",expandable_segments:True";
    const std::string text = large_segment(dice, 200, 1);
    return dice.one_in(2) ? text : text + "," + max_split(dice, 200);
  }
  if (name == "non_split_rounding") return non_split(dice, 21) + "," + max_split(dice, 20);
  if (name == "mixed" || name == "changed") return mixed(dice, true, true);
  throw std::invalid_argument("no such class of streams: " + name);
}

std::string settings_change(Dice& dice, bool with_max_split) {
  return mixed(dice, false, with_max_split);
}

}  // namespace headroom::oracle
