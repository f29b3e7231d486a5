// What LibTorch asks an accelerator besides: its generators, pinned memory, growing a storage.
#pragma once

namespace headroom::sim::detail {

void register_hooks();

}  // namespace headroom::sim::detail
