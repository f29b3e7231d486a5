#include "headroom/trace/detail/device_trace.h"

#include <string>

namespace headroom::trace::pickle {
namespace {

// Items per part of a list, as in Python's own pickler.
constexpr int kPart = 1000;

// The remark that the viewer shows beside an entry: "step 3, forward".
std::string remark(const Event& event, const Names& names) {
  if (event.kind == Kind::mark) return std::string(names.text(event.operation));
  std::string text;
  if (event.step != 0) text = "step " + std::to_string(event.step);
  if (event.phase != Phase::unknown)
    text += (text.empty() ? "" : ", ") + std::string(to_string(event.phase));
  return text;
}

}  // namespace

DeviceTrace::DeviceTrace(const std::filesystem::path& beside, const Names& names,
                         MemoNumbers& numbers)
    : names_(names), spool_(beside), pickle_(spool_.bytes(), numbers), stacks_(names) {
  pickle_.open_list();
}

void DeviceTrace::append(const Event& event) {
  if (in_part_ == 0) pickle_.open_part();
  put(event);
  if (++in_part_ == kPart) end_part();
  note_owner(event);
  last_time_ns_ = event.time_ns;
  spool_.settle();
}

void DeviceTrace::finish(OutputFile& file) {
  // memory_viz fails if categories are used and no entry has the category "unknown".
  if (categories_ == Categories::without_unknown) {
    Event last;
    last.time_ns = last_time_ns_;
    append(last);
  }
  if (in_part_ > 0) end_part();
  spool_.copy_to(file);
}

Place DeviceTrace::owner(std::uint64_t address) const {
  const auto found = owners_.find(address);
  return found == owners_.end() ? Place() : found->second;
}

void DeviceTrace::end_part() {
  pickle_.close_part();
  in_part_ = 0;
}

void DeviceTrace::note_owner(const Event& event) {
  if (event.kind == Kind::alloc)
    owners_[event.address] = {event.module, event.operation, event.line};
  if (event.kind == Kind::free_completed) owners_.erase(event.address);
}

void DeviceTrace::put(const Event& event) {
  const bool is_mark = event.kind == Kind::mark;
  const bool is_snapshot =
      is_mark && (names_.text(event.operation) == "snapshot" || event.operation == 0);
  pickle_.open_dict();
  pickle_.text("action");
  pickle_.text(is_snapshot ? "snapshot" : is_mark ? "user_defined" : to_string(event.kind));
  pickle_.text(event.kind == Kind::oom ? "device_free" : "addr");
  pickle_.address(is_mark ? 0 : event.address);
  pickle_.text("size"), pickle_.integer(event.bytes.count);
  pickle_.text("stream"), pickle_.integer(event.stream);
  pickle_.text("time_us"), pickle_.integer(event.time_ns / 1000);
  pickle_.text("compile_context"), pickle_.text("N/A");
  pickle_.text("user_metadata"), pickle_.text(remark(event, names_));
  pickle_.text("frames"),
      stacks_.put(pickle_, {event.module, is_mark ? 0 : event.operation, event.line});
  put_more(event);
  pickle_.close_dict();
}

// Fields that only some entries have. After the first entry with a category, all entries have one.
void DeviceTrace::put_more(const Event& event) {
  const bool known = event.category != Category::unknown;
  if (known && categories_ == Categories::none) categories_ = Categories::without_unknown;
  if (categories_ != Categories::none) {
    if (!known) categories_ = Categories::all;
    pickle_.text("category"), pickle_.text(to_string(event.category));
  }
  if (event.step != 0) pickle_.text("step"), pickle_.integer(event.step);
  if (event.phase != Phase::unknown) pickle_.text("phase"), pickle_.text(to_string(event.phase));
}

}  // namespace headroom::trace::pickle
