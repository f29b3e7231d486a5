// The events of one device in a snapshot: a pickled list of entries. Events arrive in the order of
// time, with all devices mixed, but the file holds one device after the other. So a long list waits
// in an unnamed file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <unordered_map>

#include "headroom/base/output_file.h"
#include "headroom/trace/detail/pickle_emitter.h"
#include "headroom/trace/detail/place.h"
#include "headroom/trace/detail/spool.h"
#include "headroom/trace/detail/stack_emitter.h"
#include "headroom/trace/event.h"

namespace headroom::trace::pickle {

class DeviceTrace {
 public:
  // Keeps its spool file beside `beside`. `names` and `numbers` must outlive this object. All
  // functions throw WriteError.
  DeviceTrace(const std::filesystem::path& beside, const Names& names, MemoNumbers& numbers);

  // Takes an event that a snapshot can express; throws UsageError for an address that viewers
  // cannot read.
  void append(const Event& event);
  // Writes the whole list, as one value of the pickle.
  void finish(OutputFile& file);

  // Where the block now at this address was allocated.
  [[nodiscard]] Place owner(std::uint64_t address) const;

 private:
  enum class Categories : std::uint8_t { none, without_unknown, all };

  void end_part();
  void note_owner(const Event& event);
  void put(const Event& event);
  void put_more(const Event& event);

  const Names& names_;
  detail::Spool spool_;
  PickleEmitter pickle_;
  StackEmitter stacks_;
  int in_part_ = 0;
  std::int64_t last_time_ns_ = 0;
  Categories categories_ = Categories::none;
  std::unordered_map<std::uint64_t, Place> owners_;
};

}  // namespace headroom::trace::pickle
