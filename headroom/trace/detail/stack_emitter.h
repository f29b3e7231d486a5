// The stacks of a snapshot that Headroom writes: a module's path and the operator as the frames of
// a program (frames.h reads them back). Each stack and each frame is written once.
//
//   StackEmitter stacks(names);
//   pickle.text("frames"), stacks.put(pickle, event.module, event.operation);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "headroom/trace/detail/pickle_emitter.h"
#include "headroom/trace/event.h"

namespace headroom::trace::pickle {

// Of one part of the file: what is remembered, is remembered by one emitter.
class StackEmitter {
 public:
  // `names` must live as long.
  explicit StackEmitter(const Names& names) : names_(names) {}

  void put(PickleEmitter& pickle, Name module, Name operation);

 private:
  void frame(PickleEmitter& pickle, std::string_view file, std::string_view name);

  const Names& names_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> frames_;
};

}  // namespace headroom::trace::pickle
