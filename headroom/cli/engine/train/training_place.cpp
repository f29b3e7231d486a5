#include "headroom/cli/engine/train/training_place.h"

#include <ATen/ATen.h>

#include <exception>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/plan/technique.h"
#include "headroom/train/oom_report.h"
#include "headroom/train/retry.h"

namespace headroom::cli {
namespace {

[[noreturn]] void fits_nowhere(c10::Device device, const oom::Judgement& judgement) {
  const auto bytes = [](const std::optional<Bytes>& one) {
    return one ? to_string(*one) : std::string("some");
  };
  const bool had_room = judgement.asked && judgement.free && *judgement.asked <= *judgement.free;
  throw OutOfMemoryError(
      Complaint{
          {},
          had_room
              ? "no model could be made on " + device.str() + ": a request of " +
                    bytes(judgement.asked) + " was refused, although " + bytes(judgement.free) +
                    " are free; try again"
              : "the model does not fit on " + device.str() + ": " + bytes(judgement.asked) +
                    " more were needed, and " + bytes(judgement.free) +
                    " are free; try a larger card, a smaller model, or model=lora quantize=4bit"},
      Bytes{0});
}

train::Event move(const std::string& from, const std::string& to) {
  train::Event event{.kind = train::Event::Kind::device};
  event.from.device = from;
  event.to.device = to;
  return event;
}

// The forms to build the model in, one after another on a device: the training's own, and with
// quantize=auto those of fewer bits, by their rungs.
std::vector<std::string> forms_of(const config::Training& training, std::int64_t outputs) {
  std::vector<std::string> forms{""};
  if (training.config.text("quantize") != "auto" || !recipe::can_quantise(training, outputs))
    return forms;
  for (const plan::Rung& rung : plan::rungs())
    if (rung.lasts) forms.push_back(rung.name);
  return forms;
}

// Fails where weights could not be stored in fewer bits later, which takes a segment of the
// allocator for codes and one for scales.
void check_room_to_quantise(c10::Device device) {
  constexpr std::int64_t kSegments = 22 << 20;
  if (!device.is_cpu())
    static_cast<void>(at::empty({kSegments}, at::TensorOptions(device).dtype(at::kByte)));
}

train::Event change(const std::string& from, const std::string& to) {
  train::Event event{.kind = train::Event::Kind::technique};
  if (!from.empty()) event.from.techniques = {from};
  event.to.techniques = {to};
  return event;
}

}  // namespace

recipe::Model model_where_it_fits(TrainingMachine& machine, const config::Training& training,
                                  std::int64_t outputs, bool reads_weights, TrainingView& view,
                                  std::vector<train::Event>& events,
                                  const std::function<void(const train::OomReport&)>& explain) {
  std::vector<std::vector<c10::Device>> places{machine.own};
  for (const train::Elsewhere& other : machine.others(training.config))
    places.push_back({c10::Device(other.device)});
  const std::vector<std::string> forms = forms_of(training, outputs);
  c10::Device last = machine.own.front();  // where a rank was made
  const auto tell = [&](train::Event event) {
    event.step = 0;  // before the first
    if (event.asked) machine.share.grow(last, *event.asked, /*stays=*/false);
    if (event.kind == train::Event::Kind::oom && machine.own.size() > 1) event.device = last.str();
    view.show_event(event);
    events.push_back(std::move(event));
  };
  const auto make = [&](const std::string& form) {
    recipe::Model made = recipe::model_of(training, machine.own,
                                          {.outputs = outputs,
                                           .reads_weights = reads_weights,
                                           .quantised = form,
                                           .say = [&](std::string_view line) { view.say(line); },
                                           .before_rank = [&](c10::Device on) { last = on; }});
    for (const c10::Device device : machine.own) {
      last = device;
      if (form != forms.back()) check_room_to_quantise(device);
    }
    return made;
  };
  // A card where the run gets no lease is as full.
  const auto may_use = [&](c10::Device device) {
    const auto most = machine.share.most(device);
    return !most || machine.share.reserve(device, *most);
  };
  for (std::size_t i = 0, form = 0;;) {
    std::exception_ptr failure;
    try {
      machine.own = places[i];
      return train::retry_on_oom([&] { return make(forms[form]); },
                                 {.max_retries = 1, .on_event = tell});
    } catch (...) {
      failure = std::current_exception();
    }
    const oom::Judgement judgement = libtorch::judge(failure);
    if (!oom::is_out_of_memory(judgement)) std::rethrow_exception(failure);
    if (form + 1 < forms.size()) {
      tell(change(forms[form], forms[form + 1]));
      ++form;
      continue;
    }
    while (i + 1 < places.size() && !may_use(places[i + 1].front()))
      places.erase(places.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i + 1 == places.size()) {
      explain(train::oom_report(
          {.device = last, .failure = train::failure_from(judgement, last), .in_a_step = false}));
      fits_nowhere(last, judgement);
    }
    const std::string now = machine.own.front().str(), next = places[i + 1].front().str();
    view.say("the model does not fit on " + now + "; trying " + next);
    events.push_back(move(now, next));
    ++i;
    form = 0;
  }
}

}  // namespace headroom::cli
