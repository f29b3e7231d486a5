// The hooks of an accelerator: its generators, pinned memory, growing a storage.
#pragma once

namespace headroom::sim::detail {

void register_hooks();

}  // namespace headroom::sim::detail
