// The page of an answer: the memory of its step over time, with the request and the result.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/answer/answer.h"
#include "headroom/trace/reader.h"

namespace headroom::answer {

// Facts for the trace and the page: the model, and the settings that were chosen or that everyone
// asks about.
[[nodiscard]] trace::About about(const Answer& answer);

// `trace`: the events of the run. Throws WriteError.
void write_page(const std::filesystem::path& path, const Answer& answer, trace::Reader& trace);

// Files that are wanted of a run's events; an empty name means no file.
struct EventFiles {
  std::string trace = {}, snapshot = {}, html = {};
  [[nodiscard]] bool any() const { return !(trace + snapshot + html).empty(); }
};
// `events`: a trace file of the run. Throws WriteError.
void write_files(const EventFiles& files, const Answer& answer,
                 const std::filesystem::path& events);

}  // namespace headroom::answer
