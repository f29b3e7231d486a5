#include "headroom/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::optim {
namespace {

void check_steps(std::string_view schedule, std::int64_t steps, std::int64_t least = 1) {
  if (steps < least)
    throw UsageError(
        expectation(schedule, std::to_string(least) + " step or more", std::to_string(steps)));
}

constexpr double kAny = 1e300;

void check_number(std::string_view schedule, std::string_view what, double number, double most) {
  if (number >= 0 && number <= most) return;  // NaN is neither
  const std::string bounds = most == kAny ? "of at least 0" : "from 0 to " + std::to_string(most);
  throw UsageError(expectation(schedule, std::string(what) + " " + bounds, std::to_string(number)));
}

// The share of the way that is done, at most 1.
double done(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::clamp<std::int64_t>(step, 0, steps)) / static_cast<double>(steps);
}

// From `first` at 0 to `last` at 1 along half a cosine wave.
double half_wave(double first, double last, double share) {
  return last + (first - last) / 2 * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace

Schedule constant() {
  return [](std::int64_t) { return 1.0; };
}

Schedule warmed_up(std::int64_t steps, Schedule then) {
  check_steps("warmed_up", steps, 0);
  return [steps, then = std::move(then)](std::int64_t step) {
    return step < steps ? then(0) * done(step, steps) : then(step - steps);
  };
}

Schedule linear(std::int64_t steps, double last) {
  return polynomial(steps, 1, last);
}

Schedule cosine(std::int64_t steps, double last, double cycles) {
  check_steps("cosine", steps);
  check_number("cosine", "a last factor", last, kAny);
  check_number("cosine", "a number of cycles", cycles, kAny);
  return [=](std::int64_t step) { return half_wave(1, last, 2 * cycles * done(step, steps)); };
}

Schedule polynomial(std::int64_t steps, double power, double last) {
  check_steps("polynomial", steps);
  check_number("polynomial", "a power", power, kAny);
  check_number("polynomial", "a last factor", last, kAny);
  return
      [=](std::int64_t step) { return last + (1 - last) * std::pow(1 - done(step, steps), power); };
}

Schedule stepped(std::int64_t every, double factor) {
  check_steps("stepped", every);
  check_number("stepped", "a factor", factor, kAny);
  return [=](std::int64_t step) { return std::pow(factor, static_cast<double>(step / every)); };
}

Schedule one_cycle(std::int64_t steps, const OneCycleOptions& options) {
  check_steps("one_cycle", steps);
  check_number("one_cycle", "a rising share", options.rising, 1);
  check_number("one_cycle", "a first factor", options.first, 1);
  check_number("one_cycle", "a last factor", options.last, 1);
  // As OneCycleLR counts: the largest rate is that of step `top`, which need not be whole.
  const double top = options.rising * static_cast<double>(steps) - 1;
  const double end = static_cast<double>(steps - 1);
  return [=](std::int64_t step) {
    const double at = std::min(static_cast<double>(step), end);
    if (at <= top) return half_wave(options.first, 1, top > 0 ? at / top : 1);
    return half_wave(1, options.last, end > top ? (at - top) / (end - top) : 1);
  };
}

}  // namespace headroom::optim
