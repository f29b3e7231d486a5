// Occupies the numbers of standard streams that are closed in this process, so that no descriptor
// opened later becomes a standard stream. The job gets them closed. Make it before any other
// descriptor.
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
