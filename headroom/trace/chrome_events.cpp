#include "headroom/trace/chrome_events.h"

#include <nlohmann/json.hpp>

namespace headroom::trace {

ChromeEvents::ChromeEvents(const std::filesystem::path& path) : file_(path) {
  file_.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
}

void ChromeEvents::put(std::string_view members) {
  file_.write(is_first_ ? "{" : ",\n{");
  file_.write(members);
  file_.write("}");
  is_first_ = false;
}

void ChromeEvents::finish(const Json& other) {
  file_.write("\n],\"otherData\":" + to_line(other) + "}\n");
  file_.commit();
}

}  // namespace headroom::trace
