#include "headroom/train/event.h"

#include <nlohmann/json.hpp>

namespace headroom::train {

const char* to_string(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::spill:
      return "spill";
    case Event::Kind::oom:
      return "oom";
    case Event::Kind::trim:
      return "trim";
    case Event::Kind::retry:
      return "retry";
    case Event::Kind::allocator:
      return "allocator";
    case Event::Kind::shrink:
      return "shrink";
    case Event::Kind::grow:
      return "grow";
    case Event::Kind::thrash:
      return "thrash";
    case Event::Kind::technique:
      return "technique";
    case Event::Kind::device:
      return "device";
    case Event::Kind::restore:
      return "restore";
    case Event::Kind::checkpoint:
      return "checkpoint";
    case Event::Kind::unpriced:
      return "unpriced";
  }
  return "";
}

namespace {

const char* what_happened(const Event& event) {
  switch (event.kind) {
    case Event::Kind::retry:
      return "again with the same plan";
    case Event::Kind::allocator:
      return "other settings of the allocator";
    case Event::Kind::shrink:
      return "smaller parts";
    case Event::Kind::grow:
      return "larger parts again";
    case Event::Kind::thrash:
      return "smaller parts, because the allocator emptied its cache again and again";
    case Event::Kind::technique:
      return adds_what_lasts(event.to, event.from)
                 ? "frozen weights stored in fewer bits from now on"
                 : "less memory for more time";
    case Event::Kind::device:
      return "to another device";
    default:
      return to_string(event.kind);
  }
}

}  // namespace

std::string to_string(const Event& event) {
  std::string words =
      event.step == 0 ? "before the first step: " : "step " + std::to_string(event.step) + ": ";
  const auto add = [&](const std::optional<Bytes>& bytes, const char* what) {
    if (bytes) words += ", " + to_string(*bytes) + " " + what;
  };
  if (event.kind == Event::Kind::oom) {
    words += "out of memory" + (event.device.empty() ? "" : " on " + event.device);
    add(event.asked, "asked");
    add(event.free, "free");
    add(event.cached, "cached");
    add(event.neighbours, "held by others");
    return words;
  }
  if (event.kind == Event::Kind::spill)
    return words + "out of memory at " + std::to_string(event.requests) +
           (event.requests == 1 ? " request" : " requests") +
           (event.moved == Bytes{}
                ? std::string(", which the card served when asked again")
                : ", " + to_string(*event.moved) + " moved to the host, and the step went on");
  if (event.kind == Event::Kind::retry && event.step == 0) return words + "again";
  if (event.kind == Event::Kind::trim) {
    words += "cache given back to the driver";
    add(event.cached, "of it");
    add(event.neighbours, "held by others");
    return words;
  }
  if (event.kind == Event::Kind::unpriced)
    return words + "the memory of plans is not known: " + event.why;
  words += what_happened(event);
  words += ": " + (event.from == event.to ? "" : to_string(event.from) + " -> ");
  words += to_string(event.to);
  return event.why.empty() ? words : words + ", because the first failed: " + event.why;
}

Json to_json(const Event& event) {
  return {{"step", event.step},
          {"kind", to_string(event.kind)},
          {"spurious", event.spurious},
          {"device", event.device.empty() ? Json() : Json(event.device)},
          {"asked_bytes", or_null(event.asked)},
          {"free_bytes", or_null(event.free)},
          {"cached_bytes", or_null(event.cached)},
          {"neighbour_bytes", or_null(event.neighbours)},
          {"requests", event.requests},
          {"moved_bytes", or_null(event.moved)},
          {"micro_batch_from", event.from.micro_batch},
          {"micro_batch_to", event.to.micro_batch},
          {"from", to_json(event.from)},
          {"to", to_json(event.to)},
          {"why", event.why.empty() ? Json() : Json(event.why)}};
}

}  // namespace headroom::train
