// What nvcc's objects call when a library with kernels is loaded: it registers them, and nothing
// happens. A launch ends the process: there is no card to run a kernel.
#include "state.h"

// Their names are the runtime's, which begin with what C++ reserves.
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

[[noreturn]] static void launched() {
  fake_cuda::fail("a kernel is launched, which needs a card");
}
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*) {
  launched();
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  launched();
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) {
  launched();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  launched();
}

}  // extern "C"
