#include "headroom/trace/reader.h"

#include <algorithm>

#include "headroom/trace/detail/fault.h"
#include "headroom/trace/file_reader.h"
#include "headroom/trace/input.h"
#include "headroom/trace/pickle_reader.h"
#include "headroom/trace/plain_reader.h"

namespace headroom::trace {
namespace {

constexpr std::size_t kFirstLook = 64;

// True if the bytes contain no control characters but tabs and line ends. An empty file is an empty
// trace.
bool looks_like_text(std::string_view begin) {
  return std::none_of(begin.begin(), begin.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
}

}  // namespace

std::string_view to_string(Format format) {
  constexpr std::string_view kNames[] = {"headroom", "plain", "pickle"};
  return kNames[static_cast<int>(format)];
}

std::unique_ptr<Reader> open_trace(Input input) {
  const std::string_view begin = input.peek(kFirstLook);
  if (begins_trace_file(begin)) return read_trace_file(std::move(input));
  if (begins_pickle(begin)) return read_pickle(std::move(input));
  if (looks_like_text(begin)) return read_plain(std::move(input));
  detail::fault(input.name(), 0, "a Headroom trace, a PyTorch snapshot pickle or plain events",
                detail::shown(begin.substr(0, 16)), "docs/formats/");
}

std::unique_ptr<Reader> open_trace(const std::filesystem::path& path) {
  return open_trace(Input::file(path));
}

}  // namespace headroom::trace
