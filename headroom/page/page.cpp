#include "headroom/page/page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/page/detail/embedded.h"
#include "headroom/page/detail/page_columns.h"
#include "headroom/page/diff.h"
#include "headroom/page/thinning.h"

namespace headroom::page {
namespace {

constexpr std::size_t kMostMarks = 500;
// A first guess of the rows that fit; a thinned page is tried again until it does.
constexpr Instant kMostInstants = 1'500'000;
// With fewer, tensors are merged, too.
constexpr Instant kFewInstants = 50'000;

Json peak_json(const Timeline& timeline, Instant peak) {
  if (timeline.instants() == 0) return nullptr;
  Bytes requested;
  for (const std::uint32_t index : living_at(timeline, peak))
    requested += timeline.tensors[index].bytes;
  return {{"instant", peak},
          {"allocated_bytes", timeline.allocated[peak].count},
          {"requested_bytes", requested.count},
          {"reserved_bytes", timeline.reserved[peak].count}};
}

// Origins, and the names in them, renumbered.
struct Texts {
  Json names = Json::array({""});
  Json origins = Json::array();
};
Texts texts_of(const Timeline& timeline) {
  Texts texts;
  std::unordered_map<trace::Name, std::size_t> numbers{{0, 0}};
  const auto number = [&](trace::Name name) {
    const auto [found, is_new] = numbers.try_emplace(name, texts.names.size());
    if (is_new) texts.names.push_back(timeline.names.text(name));
    return found->second;
  };
  for (const Origin& origin : timeline.origins)
    texts.origins.push_back({static_cast<int>(origin.category), number(origin.module),
                             number(origin.operation), number(origin.line)});
  return texts;
}

// The grouping that says most about the tensors of this trace.
const char* grouping_of(const Timeline& timeline) {
  const auto any = [&](auto known) {
    return std::any_of(timeline.origins.begin(), timeline.origins.end(), known);
  };
  if (any([](const Origin& origin) { return origin.category != trace::Category::unknown; }))
    return "category";
  if (any([](const Origin& origin) { return origin.module != 0; })) return "module";
  if (any([](const Origin& origin) { return origin.line != 0; })) return "line";
  if (any([](const Origin& origin) { return origin.operation != 0; })) return "operation";
  return "size";
}

Json categories() {
  Json names = Json::array();
  for (int i = 0; i < trace::kCategories; ++i)
    names.push_back(to_string(static_cast<trace::Category>(i)));
  return names;
}

Json refusals_json(const Timeline& timeline) {
  Json refusals = Json::array();
  for (const Refusal& refusal : timeline.refusals)
    if (refusals.size() < kRefusalsKept)
      refusals.push_back({{"instant", refusal.instant},
                          {"asked_bytes", refusal.asked.count},
                          {"free_bytes", or_null(refusal.free)},
                          {"recorded", refusal.recorded}});
  return refusals;
}

Json runs_json(const Timeline& timeline) {
  Json json{{"phases", Json::array()}, {"steps", Json::array()}, {"marks", Json::array()}};
  for (const auto& [instant, phase] : timeline.phases)
    json["phases"].push_back({instant, to_string(phase)});
  for (const auto& [instant, step] : timeline.steps) json["steps"].push_back({instant, step});
  for (const auto& [instant, text] : timeline.marks)
    if (json["marks"].size() < kMostMarks) json["marks"].push_back({instant, text});
  return json;
}

Json about_json(const Timeline& timeline, const PageOptions& options) {
  const Texts texts = texts_of(timeline);
  const std::optional<Bytes> capacity = timeline.card.capacity < allocator::kUnlimited
                                            ? timeline.card.capacity
                                            : timeline.about.capacity;
  Json json{{"schema", 1},
            {"title", options.title},
            {"made_by", "headroom " HEADROOM_VERSION},
            {"program", timeline.about.program},
            {"device", or_null(timeline.device)},
            {"times_are_known", timeline.about.times_are_known},
            {"settings", timeline.card.settings},
            {"torch", timeline.card.version.torch},
            {"capacity_bytes", or_null(capacity)},
            {"events", timeline.events},
            {"instants", timeline.instants()},
            {"thinned", timeline.is_thinned},
            {"tensors_merged", timeline.merged},
            {"tensors", timeline.tensors.size()},
            {"tensors_left_out", timeline.left_out},
            {"peak", peak_json(timeline, timeline.peak)},
            {"reserved_peak", peak_json(timeline, timeline.reserved_peak)},
            {"group_by", grouping_of(timeline)},
            {"names", texts.names},
            {"whats", texts.origins},
            {"categories", categories()},
            {"ooms", refusals_json(timeline)},
            {"ooms_count", timeline.refusals.size()},
            {"survived", options.survived},
            {"facts", timeline.about.facts},
            {"notes", options.notes}};
  json.update(runs_json(timeline));
  return json;
}

// JSON within an element <script>.
std::string in_script(const Json& json) {
  std::string text;
  for (const char c : to_line(json)) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

std::string in_html(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string elements(const Timeline& timeline, const PageOptions& options) {
  return R"(<script class="about" type="application/json">)" +
         in_script(about_json(timeline, options)) + "</script>\n" +
         R"(<script class="columns" type="text/plain">)" + detail::page_columns(timeline) +
         "</script>\n";
}

// Thins the timeline until its elements are small enough: first by leaving out instants, then,
// where that does not help because so many tensors live at once, also by merging tensors.
std::string elements_within(Bytes most, const Timeline& timeline, const PageOptions& options) {
  const auto fits = [&](const std::string& text) {
    return static_cast<std::int64_t>(text.size()) <= most.count;
  };
  std::size_t before = std::numeric_limits<std::size_t>::max() / 16;
  if (timeline.instants() <= kMostInstants) {
    std::string whole = elements(timeline, options);
    if (fits(whole)) return whole;
    before = whole.size();
  }
  for (Instant instants = std::min(timeline.instants(), kMostInstants) / 2; instants > kFewInstants;
       instants /= 2) {
    std::string thin = elements(thinned(timeline, {.instants = instants}), options);
    if (fits(thin)) return thin;
    if (thin.size() * 10 > before * 9) break;
    before = thin.size();
  }
  for (Instant instants = std::min(timeline.instants(), kFewInstants);; instants /= 2) {
    std::string merged =
        elements(thinned(timeline, {.instants = instants, .merges = true}), options);
    if (fits(merged) || instants < 10) return merged;
  }
}

// The template with its five marks filled in. In one pass: a title may look like a mark.
std::string filled(const std::string& title, const std::string& data) {
  const std::string title_in_html = in_html(title);
  const std::map<std::string_view, std::string_view> texts{{"title", title_in_html},
                                                           {"style", embedded::page_css()},
                                                           {"d3", embedded::d3_js()},
                                                           {"script", embedded::page_js()},
                                                           {"data", data}};
  std::string page;
  std::string_view rest = embedded::page_html();
  for (std::size_t begin; (begin = rest.find("{{")) != std::string_view::npos;) {
    const std::size_t end = rest.find("}}", begin);
    page += rest.substr(0, begin);
    page += texts.at(rest.substr(begin + 2, end - begin - 2));
    rest.remove_prefix(end + 2);
  }
  return page.append(rest);
}

void write(const std::filesystem::path& path, const std::string& page) {
  OutputFile file(path);
  file.write(page);
  file.commit();
}

// The document of a difference, with modules that differ in a number as one part.
Json for_page(const Difference& difference) {
  Difference shown = difference;
  shown.parts.clear();
  for (const FoldedPart& folded : folded(difference.parts)) {
    shown.parts.push_back(folded.part);
    shown.parts.back().module = shown_module(folded);
  }
  return to_json(shown);
}

Bytes size_of_frame() {
  const std::size_t size = embedded::page_html().size() + embedded::page_css().size() +
                           embedded::d3_js().size() + embedded::page_js().size();
  return Bytes{static_cast<std::int64_t>(size)};
}

}  // namespace

std::string page_of(const Timeline& timeline, const PageOptions& options) {
  return filled(options.title,
                elements_within(options.most_bytes - size_of_frame(), timeline, options));
}

void write_page(const std::filesystem::path& path, const Timeline& timeline,
                const PageOptions& options) {
  write(path, page_of(timeline, options));
}

trace::Exported export_page(const std::filesystem::path& path, trace::Reader& trace,
                            const trace::ReplayOptions& replay, const PageOptions& options) {
  const Timeline timeline = timeline_of(trace, replay);
  if (timeline.events == 0 && !replay.cancel.stop_requested())
    throw InputError("expected a trace with events in " + replay.operations.name +
                     ", received none");
  trace::Exported exported;
  exported.replay.card = timeline.card;
  exported.replay.noticed = timeline.noticed;
  exported.written = timeline.tensors.size();
  exported.stopped = replay.cancel.stop_requested();
  if (!exported.stopped) write_page(path, timeline, options);
  return exported;
}

void write_page(const std::filesystem::path& path, const Timeline& a, const Timeline& b,
                const Difference& difference, const PageOptions& options) {
  const Bytes each = (options.most_bytes - size_of_frame()) / 2;
  PageOptions of_a = options, of_b = options;
  of_a.title = difference.a.name;
  of_b.title = difference.b.name;
  write(path,
        filled(options.title, elements_within(each, a, of_a) + elements_within(each, b, of_b) +
                                  R"(<script id="diff" type="application/json">)" +
                                  in_script(for_page(difference)) + "</script>\n"));
}

}  // namespace headroom::page
