// Functions that libc10_cuda.so links and its caching allocator never calls: a call ends the
// process, so that an invented answer cannot pass for a real one.
#include "state.h"

#define NOT_HERE(name, ...)                                                       \
  cudaError_t name(__VA_ARGS__) {                                                 \
    fake_cuda::fail(#name " is called, which the caching allocator does not do"); \
  }

extern "C" {

NOT_HERE(cudaDeviceEnablePeerAccess, int, unsigned int)
NOT_HERE(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
NOT_HERE(cudaDeviceGetGraphMemAttribute, int, cudaGraphMemAttributeType, void*)
NOT_HERE(cudaDeviceSetGraphMemAttribute, int, cudaGraphMemAttributeType, void*)
NOT_HERE(cudaFreeAsync, void*, cudaStream_t)
NOT_HERE(cudaGraphNodeGetDependencies, cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
         std::size_t*)
NOT_HERE(cudaIpcCloseMemHandle, void*)
NOT_HERE(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
NOT_HERE(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned int)
NOT_HERE(cudaMallocAsync, void**, std::size_t, cudaStream_t)
NOT_HERE(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOT_HERE(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, std::size_t)
NOT_HERE(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOT_HERE(cudaMemPoolTrimTo, cudaMemPool_t, std::size_t)
NOT_HERE(cudaMemcpy, void*, const void*, std::size_t, cudaMemcpyKind)
NOT_HERE(cudaMemcpyAsync, void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t)
NOT_HERE(cudaMemcpyPeerAsync, void*, int, const void*, int, std::size_t, cudaStream_t)
NOT_HERE(cudaStreamCreateWithPriority, cudaStream_t*, unsigned int, int)
NOT_HERE(cudaStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned int)

}  // extern "C"
