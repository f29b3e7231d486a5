#include "headroom/answer/page.h"

#include <nlohmann/json.hpp>
#include <set>

#include "headroom/answer/words.h"
#include "headroom/base/error.h"
#include "headroom/page/page.h"
#include "headroom/trace/export.h"

namespace headroom::answer {

trace::About about(const Answer& answer) {
  trace::About about;
  about.facts = {{"model", answer.model}};
  if (!answer.settings) return about;
  const Json settings = model::to_json(*answer.settings), usual = model::to_json(model::Settings{});
  const std::set<std::string> asked{"batch", "seq", "dtype", "optimizer", "checkpointing"};
  for (const auto& [name, value] : settings.items())
    if (!value.is_null() && (asked.contains(name) || value != usual.value(name, Json())))
      about.facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return about;
}

void write_page(const std::filesystem::path& path, const Answer& answer, trace::Reader& trace) {
  std::string title = answer.model;
  if (answer.settings) title += ", " + settings_words(*answer.settings);
  page::write_page(path, page::timeline_of(trace), {.title = title, .notes = sentences(answer)});
}

void write_files(const EventFiles& files, const Answer& answer,
                 const std::filesystem::path& events) {
  std::error_code error;
  if (!files.trace.empty())
    std::filesystem::copy_file(events, files.trace,
                               std::filesystem::copy_options::overwrite_existing, error);
  if (error) throw WriteError(files.trace, "cannot be written: " + error.message());
  if (!files.snapshot.empty())
    (void)trace::export_snapshot(files.snapshot, *trace::open_trace(events));
  if (!files.html.empty()) write_page(files.html, answer, *trace::open_trace(events));
}

}  // namespace headroom::answer
