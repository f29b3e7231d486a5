// Standard streams that are closed here. They stay so for the job, but their numbers are taken
// meanwhile: nothing that we open must become somebody's standard output. To be made first.
#pragma once

#include <fcntl.h>

#include <array>

#include "headroom/base/descriptor.h"

namespace headroom::job {

class ClosedStreams {
 public:
  ClosedStreams() {
    for (int stream = 0; stream < 3; ++stream)
      if (::fcntl(stream, F_GETFD) < 0)
        places_[static_cast<std::size_t>(stream)] =
            Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  [[nodiscard]] bool contains(int stream) const {
    return places_[static_cast<std::size_t>(stream)].is_open();
  }

 private:
  std::array<Descriptor, 3> places_;
};

}  // namespace headroom::job
