#include "headroom/trace/detail/stack_emitter.h"

namespace headroom::trace::pickle {

void StackEmitter::put(PickleEmitter& pickle, const Place& place) {
  const std::tuple key(place.module, place.operation, place.line);
  if (const auto known = numbers_.find(key); known != numbers_.end())
    return pickle.recall(known->second);
  pickle.open_list();
  pickle.open_part();
  if (place.operation != 0) frame(pickle, kOperatorFrame, names_.text(place.operation));
  if (place.line != 0) frame(pickle, kLineFrame, names_.text(place.line));
  // "h.3.attn", then "h.3", then "h".
  for (std::string_view path = names_.text(place.module); !path.empty();) {
    frame(pickle, kModuleFrame, path);
    const std::size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
  pickle.close_part();
  numbers_.emplace(key, pickle.remember());
}

void StackEmitter::frame(PickleEmitter& pickle, std::string_view file, std::string_view name) {
  const auto key = std::pair(std::string(file), std::string(name));
  if (const auto known = frames_.find(key); known != frames_.end())
    return pickle.recall(known->second);
  pickle.open_dict();
  pickle.text("filename"), pickle.text(file);
  pickle.text("line"), pickle.integer(0);
  pickle.text("name"), pickle.text(name);
  pickle.close_dict();
  frames_.emplace(key, pickle.remember());
}

}  // namespace headroom::trace::pickle
