// portable.h's mark for functions that cannot be constexpr, because they take roots.
#pragma once

#ifdef __CUDACC__
#define HEADROOM_BOTH __host__ __device__ __forceinline__
#else
#define HEADROOM_BOTH [[gnu::always_inline]] inline
#endif
