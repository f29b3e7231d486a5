// Writes the seeds of our own format into a folder: after a change of the format, into corpus/.
//
//   write_seeds tests/fuzz/corpus
#include <cstdio>
#include <filesystem>
#include <string>

#include "headroom/base/file.h"
#include "headroom/trace/detail/columns.h"
#include "headroom/trace/file_writer.h"
#include "tests/fuzz/read_everything.h"

namespace {

using namespace headroom;
using namespace headroom::trace;
namespace fs = std::filesystem;

// One of each kind, with names, several steps and streams.
std::vector<Event> events(Names& names) {
  std::vector<Event> made;
  for (int i = 0; i < 2 * kKinds; ++i) {
    Event event;
    event.time_ns = 1'760'000'000'000'000'000 + i * 12'345;
    event.address = 0x7f20'0000'0000 + static_cast<std::uint64_t>(i % 5) * 2'097'152;
    event.bytes = Bytes{i * 1'000'003LL};
    event.kind = static_cast<Kind>(i % kKinds);
    event.stream =
        event.kind == Kind::complete_events ? kAllStreams : static_cast<std::uint32_t>(i % 3);
    event.step = static_cast<std::uint32_t>(i / 8);
    event.module = names.number("transformer.h." + std::to_string(i % 4));
    event.operation =
        names.number(event.kind == Kind::settings ? "max_split_size_mb:64" : "aten::mm");
    event.device = static_cast<std::uint16_t>(i % 2);
    event.category = static_cast<Category>(i % kCategories);
    event.phase = static_cast<Phase>(i % kPhases);
    made.push_back(event);
  }
  return made;
}

void write_file(const fs::path& path) {
  Names names;
  const std::vector<Event> all = events(names);
  TraceWriter writer(path,
                     {.program = "write_seeds",
                      .settings = "max_split_size_mb:64",
                      .capacity = Bytes{24LL << 30},
                      .times_are_known = true},
                     names, {.events_per_part = 20});
  for (const Event& event : all) writer.append(event);
  writer.close();
}

// The example of docs/formats/trace.md: two parts, the second without new names.
void write_example(const fs::path& path) {
  Names names;
  TraceWriter writer(path,
                     {.program = "example", .capacity = Bytes{24LL << 30}, .times_are_known = true},
                     names, {.events_per_part = 2});
  Event event;
  event.time_ns = 1'760'000'000'000'000'000;
  event.address = 0x7f20'0000'0000;
  event.kind = Kind::alloc;
  event.bytes = Bytes{4096};
  event.step = 1;
  event.module = names.number("h.0.attn");
  event.operation = names.number("aten::mm");
  event.category = Category::activation;
  event.phase = Phase::forward;
  writer.append(event);
  event.time_ns += 1500;
  event.address += 4096;
  event.bytes = Bytes{1000};
  writer.append(event);
  event.time_ns += 20'000;
  event.kind = Kind::free_requested;
  writer.append(event);
  event.kind = Kind::free_completed;
  writer.append(event);
}

void write_part(const fs::path& path) {
  Names names;
  std::vector<Event> all = events(names);
  std::string raw{fuzz::kPart, static_cast<char>(all.size()), 0};
  detail::append_varint(raw, 1);
  detail::append_varint(raw, names.size() - 1);
  for (Name name = 1; name < names.size(); ++name) {
    detail::append_varint(raw, names.text(name).size());
    raw += names.text(name);
  }
  detail::append_columns(raw, all);
  write_file_atomically(path, raw);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("write_seeds FOLDER\n", stderr), 64;
  const fs::path folder = argv[1];
  write_file(folder / "whole.hrtrace");
  const std::string whole = read_input(folder / "whole.hrtrace");
  write_file_atomically(folder / "cut-in-a-part.hrtrace", whole.substr(0, whole.size() - 20));
  write_file_atomically(folder / "cut-in-the-head.hrtrace", whole.substr(0, 60));
  write_file_atomically(folder / "zeros-at-the-end.hrtrace", whole + std::string(40, '\0'));
  write_example(folder / "example.hrtrace");
  write_part(folder / "inside-of-a-part");
}
