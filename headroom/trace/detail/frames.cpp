#include "headroom/trace/detail/frames.h"

#include <algorithm>
#include <array>
#include <string>

namespace headroom::trace::pickle {
namespace {

// Number of frames read per stack. Longer stacks are recursion, and a file may refer to one stack
// many times.
constexpr int kDeepest = 512;

// A file name with one of these parts or beginnings (paths of the machine that built Python or
// PyTorch) belongs to PyTorch, Python or the C library, not to the user.
constexpr std::array<std::string_view, 6> kInnerParts = {
    "-packages/torch/", "/c10/", "/aten/", "/pytorch/", "/c++/", "<eval_with_key>"};
constexpr std::array<std::string_view, 9> kInnerBegins = {"torch/",  "<frozen",  "<string>",
                                                          "Python/", "Objects/", "Modules/",
                                                          "ceval.c", "../csu/",  "csu/"};

// A C++ frame of the wheel's libraries has a bare file name, and no line.
bool is_users(const Frame& frame) {
  const std::string_view file = frame.filename;
  if (frame.line <= 0 || file.empty() || file == "??" || file == "none") return false;
  const auto has = [&](std::string_view part) { return file.find(part) != std::string_view::npos; };
  const auto begins = [&](std::string_view begin) { return file.starts_with(begin); };
  return std::none_of(kInnerParts.begin(), kInnerParts.end(), has) &&
         std::none_of(kInnerBegins.begin(), kInnerBegins.end(), begins);
}

// "at::_ops::mm::call(at::Tensor const&, ...)" gives "mm"; any other function gives "".
std::string_view operator_of(std::string_view function) {
  constexpr std::string_view kBefore = "at::_ops::";
  const std::size_t at = function.find(kBefore);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = function.substr(at + kBefore.size());
  return rest.substr(0, rest.find("::"));
}

// Part of the name of a frame of autograd's engine, which runs backward on a thread without Python.
constexpr std::string_view kEngine = "torch::autograd::Engine::";
constexpr std::string_view kBackward = "backward pass";

}  // namespace

Places::Meaning Places::meaning(const SnapshotTree& snapshot, Value value, Names& names) {
  const auto [found, is_new] = meanings_.try_emplace(value.word());
  Meaning& meaning = found->second;
  if (!is_new) return meaning;
  const Frame frame = snapshot.frame(value);
  const bool may_be_own = frame.line == 0;
  meaning.kind = Meaning::Kind::inner;
  if (may_be_own && frame.filename == kOperatorFrame) {
    meaning = {Meaning::Kind::own_operation, names.number(frame.name)};
  } else if (may_be_own && frame.filename == kLineFrame) {
    meaning = {Meaning::Kind::own_line, names.number(frame.name)};
  } else if (may_be_own && frame.filename == kModuleFrame) {
    meaning = {Meaning::Kind::own_module, names.number(frame.name)};
  } else if (const auto called = operator_of(frame.name); !called.empty()) {
    meaning = {Meaning::Kind::operation, names.number("aten::" + std::string(called))};
  } else if (frame.name.find(kEngine) != std::string_view::npos) {
    meaning.kind = Meaning::Kind::engine;
  } else if (is_users(frame)) {
    const std::string where = std::string(frame.filename) + ":" + std::to_string(frame.line);
    meaning = {Meaning::Kind::user, names.number(frame.name), names.number(where)};
  }
  return meaning;
}

Place Places::of(const SnapshotTree& snapshot, Value frames, Names& names) {
  Place place;
  Value frame;
  Items items = snapshot.tree().items(frames);
  for (int depth = 0; depth < kDeepest && items.next(frame); ++depth) {
    const Meaning found = meaning(snapshot, frame, names);
    switch (found.kind) {
      case Meaning::Kind::inner:
        break;
      // When operators call each other, the outermost is the one that the program called.
      case Meaning::Kind::operation:
      case Meaning::Kind::own_operation:
        place.operation = found.name;
        break;
      case Meaning::Kind::own_line:
        place.line = found.name;
        break;
      case Meaning::Kind::own_module:
        place.module = found.name;
        return place;
      case Meaning::Kind::engine:
        place.is_backward = true;
        break;
      case Meaning::Kind::user:
        place.line = found.where;
        place.is_backward = false;  // a forward pass that backward runs again
        if (place.operation == 0) place.operation = found.name;
        return place;
    }
  }
  if (place.is_backward && place.line == 0) place.line = names.number(kBackward);
  return place;
}

}  // namespace headroom::trace::pickle
