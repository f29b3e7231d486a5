#include "headroom/supervise/supervisor.h"

#include "headroom/base/interrupt.h"
#include "headroom/edit/edited_files.h"
#include "headroom/supervise/place_search.h"
#include "headroom/supervise/run_try.h"
#include "headroom/supervise/supervision.h"

namespace headroom::supervise {

Report supervise(const Orders& orders, const Listener& listener) {
  // No signal may end this process between tries: files of the user are changed.
  const SignalsHeld held;
  listener.tell_all(edit::restore_leftovers(edit::mapped_files(orders.maps)));
  const edit::Knobs knobs(orders.maps, orders.command);
  PlaceSearch places(orders, listener);
  const auto run = [&](job::Launch launch, const Place& place) {
    launch.signal_mask = held.before();
    return run_try(
        std::move(launch), place, [&] { return places.known(); }, orders, listener);
  };
  return run_supervision(orders, listener, knobs, places, run);
}

}  // namespace headroom::supervise
