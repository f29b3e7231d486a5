#include "headroom/page/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "headroom/base/error.h"

namespace headroom::page {
namespace {

constexpr std::string_view kRounding = "rounding";

// The bytes of both sides, by phase, module and category.
struct Both {
  Bytes a, b;
};
using Key = std::tuple<trace::Phase, std::string, std::string>;
using Parts = std::map<Key, Both>;

std::string module_of(const Timeline& timeline, const Origin& origin) {
  return std::string(timeline.names.text(origin.module != 0 ? origin.module : origin.line));
}

void add(Parts& parts, const Timeline& timeline, Instant instant, Bytes Both::*side) {
  if (timeline.instants() == 0) return;
  for (const std::uint32_t index : living_at(timeline, instant)) {
    const TensorLife& tensor = timeline.tensors[index];
    const Origin& origin = timeline.origins[tensor.origin];
    const trace::Phase phase = phase_at(timeline, tensor.born);
    const std::string module = module_of(timeline, origin);
    parts[{phase, module, plural(origin.category)}].*side += tensor.bytes;
    if (tensor.block != tensor.bytes)
      parts[{phase, module, std::string(kRounding)}].*side += tensor.block - tensor.bytes;
  }
}

Bytes size_of(Bytes difference) {
  return difference < Bytes{0} ? Bytes{} - difference : difference;
}

void sort_by_difference(std::vector<DifferentPart>& parts) {
  const auto key = [](const DifferentPart& part) {
    return std::tuple(Bytes{} - size_of(part.b - part.a), part.phase, std::string_view(part.module),
                      std::string_view(part.category));
  };
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const auto& x, const auto& y) { return key(x) < key(y); });
}

Instant compared(const Timeline& timeline, const DiffOptions& options, const std::string& name) {
  if (!options.step) return timeline.peak;
  const auto peak = peak_of_step(timeline, *options.step);
  if (!peak)
    throw UsageError(expectation("diff", "a step that " + name + " has",
                                 std::to_string(*options.step), "another --step"));
  return *peak;
}

// The highest of a figure in each step.
std::map<std::uint32_t, Bytes> peaks_of_steps(const Timeline& timeline,
                                              const std::vector<Bytes>& figure) {
  std::map<std::uint32_t, Bytes> peaks;
  for (std::size_t run = 0; run < timeline.steps.size(); ++run) {
    const auto [begin, step] = timeline.steps[run];
    const Instant end =
        run + 1 < timeline.steps.size() ? timeline.steps[run + 1].first : timeline.instants();
    Bytes& peak = peaks[step];
    for (Instant i = begin; i < end; ++i) peak = std::max(peak, figure[i]);
  }
  return peaks;
}

ComparedPeak peak_at(const Timeline& timeline, Instant instant, const DiffOptions& options,
                     const std::string& name) {
  if (timeline.instants() == 0) return {.name = name};
  return {.name = name,
          .allocated = timeline.allocated[instant],
          .reserved = options.step ? peaks_of_steps(timeline, timeline.reserved).at(*options.step)
                                   : timeline.reserved[timeline.reserved_peak],
          .phase = phase_at(timeline, instant),
          .step = step_at(timeline, instant)};
}

std::vector<ComparedStep> steps_of(const Timeline& a, const Timeline& b) {
  std::map<std::uint32_t, ComparedStep> steps;
  for (const auto& [step, peak] : peaks_of_steps(a, a.allocated)) steps[step].a = peak;
  for (const auto& [step, peak] : peaks_of_steps(b, b.allocated)) steps[step].b = peak;
  std::vector<ComparedStep> all;
  for (auto& [step, compared] : steps) {
    compared.step = step;
    all.push_back(compared);
  }
  return all;
}

// ---- Reasons ----

std::string times(Bytes a, Bytes b) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f x", ratio(b, a));
  return text.data();
}

// The settings that differ: those that the user changed. In A's order.
void add_facts(std::vector<std::string>& reasons, const Timeline& a, const Timeline& b) {
  const std::map<std::string, std::string> before(a.about.facts.begin(), a.about.facts.end());
  const std::map<std::string, std::string> after(b.about.facts.begin(), b.about.facts.end());
  for (const auto& [name, value] : a.about.facts) {
    const auto found = after.find(name);
    if (found == after.end())
      reasons.push_back(fmt::format("{}: {} in A, not recorded in B", name, value));
    else if (found->second != value)
      reasons.push_back(fmt::format("{}: {} in A, {} in B", name, value, found->second));
  }
  for (const auto& [name, value] : b.about.facts)
    if (!before.contains(name))
      reasons.push_back(fmt::format("{}: {} in B, not recorded in A", name, value));
  const auto settings = [](const Timeline& timeline) {
    return timeline.card.settings.empty() ? std::string("PyTorch's defaults")
                                          : timeline.card.settings;
  };
  if (settings(a) != settings(b))
    reasons.push_back(fmt::format("allocator: {} in A, {} in B", settings(a), settings(b)));
}

void add_categories(std::vector<std::string>& reasons, const Parts& parts) {
  std::map<std::string, Both> categories;
  for (const auto& [key, both] : parts) {
    categories[std::get<2>(key)].a += both.a;
    categories[std::get<2>(key)].b += both.b;
  }
  std::vector<std::pair<std::string, Both>> sorted(categories.begin(), categories.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) {
    return size_of(x.second.b - x.second.a) > size_of(y.second.b - y.second.a);
  });
  for (const auto& [category, both] : sorted) {
    if (both.a == both.b) continue;
    std::string sentence =
        fmt::format("{}: {} in A, {} in B", category, to_string(both.a), to_string(both.b));
    if (both.a > Bytes{0} && both.b > Bytes{0}) sentence += ", " + times(both.a, both.b);
    reasons.push_back(sentence);
  }
}

void add_moment(std::vector<std::string>& reasons, const Difference& difference) {
  const std::string a = moment_of(difference.a), b = moment_of(difference.b);
  if (!a.empty() && !b.empty() && a != b)
    reasons.push_back(fmt::format("the peak is in {} in A, in {} in B", a, b));
}

// Modules that hold memory at one peak and none at the other.
void add_modules(std::vector<std::string>& reasons, const Parts& parts) {
  std::map<std::string, Both> modules;
  for (const auto& [key, both] : parts) {
    modules[std::get<1>(key)].a += both.a;
    modules[std::get<1>(key)].b += both.b;
  }
  for (Bytes Both::*side : {&Both::a, &Both::b}) {
    std::vector<std::string> names;
    Bytes bytes;
    for (const auto& [name, both] : modules) {
      const Bytes other = side == &Both::a ? both.b : both.a;
      if (name.empty() || both.*side == Bytes{} || other != Bytes{}) continue;
      names.push_back(name);
      bytes += both.*side;
    }
    if (names.empty()) continue;
    const std::string more = names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1);
    reasons.push_back(fmt::format("only in {}: {}{}, {}", side == &Both::a ? "A" : "B",
                                  names.front(), more, to_string(bytes)));
  }
}

std::string without_numbers(const std::string& module) {
  std::string text, part;
  const auto end_part = [&] {
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    text += is_number ? "*" : part;
    part.clear();
  };
  for (const char c : module) {
    if (c != '.') {
      part += c;
      continue;
    }
    end_part();
    text += '.';
  }
  end_part();
  return text;
}

}  // namespace

std::string plural(trace::Category category) {
  switch (category) {
    case trace::Category::parameter:
    case trace::Category::buffer:
    case trace::Category::input:
    case trace::Category::gradient:
    case trace::Category::activation:
      return std::string(to_string(category)) + "s";
    case trace::Category::temporary:
      return "temporaries";
    default:
      return std::string(to_string(category));
  }
}

std::string moment_of(const ComparedPeak& peak) {
  std::string text = peak.phase == trace::Phase::unknown ? "" : std::string(to_string(peak.phase));
  if (peak.step != 0)
    text += (text.empty() ? "" : " of ") + std::string("step ") + std::to_string(peak.step);
  return text;
}

std::string shown_module(const FoldedPart& folded) {
  if (folded.modules == 1) return folded.part.module;
  return fmt::format("{} ({} modules)", folded.part.module, folded.modules);
}

Difference difference_of(const Timeline& a, const Timeline& b, const DiffOptions& options) {
  const Instant at_a = compared(a, options, options.name_a);
  const Instant at_b = compared(b, options, options.name_b);
  Difference difference{.a = peak_at(a, at_a, options, options.name_a),
                        .b = peak_at(b, at_b, options, options.name_b),
                        .parts = {},
                        .steps = steps_of(a, b),
                        .reasons = {}};
  Parts parts;
  add(parts, a, at_a, &Both::a);
  add(parts, b, at_b, &Both::b);
  for (const auto& [key, both] : parts)
    if (both.a != both.b)
      difference.parts.push_back(
          {std::get<0>(key), std::get<1>(key), std::get<2>(key), both.a, both.b});
  sort_by_difference(difference.parts);
  add_facts(difference.reasons, a, b);
  add_moment(difference.reasons, difference);
  add_categories(difference.reasons, parts);
  add_modules(difference.reasons, parts);
  return difference;
}

std::vector<FoldedPart> folded(const std::vector<DifferentPart>& parts) {
  struct Sum {
    Both both;
    std::set<std::string> modules;
  };
  std::map<Key, Sum> sums;
  for (const DifferentPart& part : parts) {
    Sum& sum = sums[{part.phase, without_numbers(part.module), part.category}];
    sum.both.a += part.a;
    sum.both.b += part.b;
    sum.modules.insert(part.module);
  }
  std::vector<FoldedPart> all;
  for (const auto& [key, sum] : sums) {
    const bool alone = sum.modules.size() == 1;
    all.push_back({{std::get<0>(key), alone ? *sum.modules.begin() : std::get<1>(key),
                    std::get<2>(key), sum.both.a, sum.both.b},
                   sum.modules.size()});
  }
  std::stable_sort(all.begin(), all.end(), [](const FoldedPart& x, const FoldedPart& y) {
    return size_of(x.part.b - x.part.a) > size_of(y.part.b - y.part.a);
  });
  return all;
}

Json to_json(const Difference& difference) {
  const auto peak = [](const ComparedPeak& side) {
    return Json{{"name", side.name},
                {"peak_allocated_bytes", side.allocated.count},
                {"peak_reserved_bytes", side.reserved.count},
                {"phase", to_string(side.phase)},
                {"step", side.step}};
  };
  Json json{{"schema", 1},
            {"peak_difference_bytes", difference.peak().count},
            {"a", peak(difference.a)},
            {"b", peak(difference.b)},
            {"parts", Json::array()},
            {"per_step", Json::array()},
            {"reasons", difference.reasons}};
  for (const DifferentPart& part : difference.parts)
    json["parts"].push_back({{"phase", to_string(part.phase)},
                             {"module", part.module},
                             {"category", part.category},
                             {"bytes", (part.b - part.a).count},
                             {"a_bytes", part.a.count},
                             {"b_bytes", part.b.count}});
  for (const ComparedStep& step : difference.steps)
    json["per_step"].push_back(
        {{"step", step.step}, {"a_bytes", or_null(step.a)}, {"b_bytes", or_null(step.b)}});
  return json;
}

}  // namespace headroom::page
