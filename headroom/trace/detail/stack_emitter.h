// The stacks of a snapshot that Headroom writes: the operator, the program's line and the module's
// path take the place of a program's frames (frames.h reads them back). Each stack and each frame
// is written once.
//
//   StackEmitter stacks(names);
//   pickle.text("frames"), stacks.put(pickle, place_of(event));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "headroom/trace/detail/pickle_emitter.h"
#include "headroom/trace/detail/place.h"
#include "headroom/trace/event.h"

namespace headroom::trace::pickle {

// Use one for each part of the file that is written separately: it refers only to stacks that it
// wrote itself.
class StackEmitter {
 public:
  // `names` must outlive this object.
  explicit StackEmitter(const Names& names) : names_(names) {}

  void put(PickleEmitter& pickle, const Place& place);

 private:
  void frame(PickleEmitter& pickle, std::string_view file, std::string_view name);

  const Names& names_;
  std::map<std::tuple<Name, Name, Name>, std::uint32_t> numbers_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> frames_;
};

}  // namespace headroom::trace::pickle
