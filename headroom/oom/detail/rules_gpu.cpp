// Messages that a card's memory ran out, by who writes them.
#include <array>

#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

constexpr Rule gpu(std::string_view kind, double confidence, std::string_view pattern) {
  return {Meaning::gpu, kind, confidence, pattern};
}
constexpr Rule host(std::string_view kind, double confidence, std::string_view pattern) {
  return {Meaning::host, kind, confidence, pattern};
}
constexpr Rule possible(std::string_view kind, std::string_view pattern) {
  return {Meaning::possible, kind, 0.5, pattern};
}

// llama.cpp, ggml and what is built on them. First, because they also print CUDA's words.
constexpr std::array kGgml{
    gpu("llama.cpp/ggml", 0.95, "ggml_*cudamalloc failed: out of memory"),
    gpu("llama.cpp/ggml", 0.95, "cuda error * at *ggml-cuda*: out of memory"),
    gpu("llama.cpp/ggml", 0.95, "ggml_vulkan: device memory allocation of size # failed"),
    gpu("llama.cpp/ggml", 0.9, "ggml_vulkan*outofdevicememory"),
    gpu("llama.cpp/ggml", 0.9, "ggml_*out of memory"),
    gpu("llama.cpp/ggml", 0.9, "rocm error: out of memory"),
    host("llama.cpp/ggml", 0.9, "ggml_backend_cpu_buffer*failed to allocate"),
    host("llama.cpp/ggml", 0.9, "ggml_aligned_malloc: insufficient memory"),
    host("llama.cpp/ggml", 0.85, "failed to allocate cpu*buffer"),
    host("llama.cpp/ggml", 0.85, "unable to allocate cpu*buffer"),
    gpu("llama.cpp/ggml", 0.9, "failed to allocate cuda#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "unable to allocate cuda#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "unable to allocate rocm#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "failed to allocate rocm#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "unable to allocate vulkan#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "failed to allocate vulkan#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "unable to allocate sycl#*buffer"),
    gpu("llama.cpp/ggml", 0.9, "unable to allocate metal*buffer"),
    gpu("llama.cpp/ggml", 0.75, "ggml_metal*buffer*size*larger than buffer maximum"),
    gpu("llama.cpp/ggml", 0.85, "ggml_metal*failed to allocate*buffer"),
    gpu("llama.cpp/ggml", 0.85, "ggml_gallocr_reserve*failed to allocate"),
    gpu("llama.cpp/ggml", 0.7, "failed to allocate compute*buffer"),
    gpu("llama.cpp/ggml", 0.7, "failed to allocate buffer for kv cache"),
    gpu("llama.cpp/ggml", 0.6, "unable to allocate backend buffer"),
    host("llama.cpp/ggml", 0.9, "requires more system memory*than is available"),
    gpu("llama.cpp/ggml", 0.9, "requires more gpu memory*than is available"),
};

// PyTorch's caching allocators; the wording of cudaMallocAsync never says "CUDA out of memory".
constexpr std::array kTorch{
    possible("cuda_caching_allocator", "tried to allocate more than 1eb"),
    gpu("hip", 0.98, "hip out of memory"),
    gpu("xpu", 0.98, "xpu out of memory"),
    gpu("npu", 0.98, "npu out of memory"),
    gpu("hpu", 0.98, "hpu out of memory"),
    gpu("mps", 0.98, "mps backend out of memory"),
    gpu("mps", 0.8, "mps allocated:*max allowed:"),
    gpu("cuda_caching_allocator", 0.98, "cuda out of memory. tried to"),
    gpu("cuda_caching_allocator", 0.95, "tried to allocate #*gpu #*total capac"),
    gpu("cuda_caching_allocator", 0.95, "allocation on device*would exceed allowed memory"),
    gpu("cuda_caching_allocator", 0.9, "allocation on device #*outofmemoryerror"),
    gpu("cuda_caching_allocator", 0.9, "torch.cuda.outofmemoryerror"),
    gpu("cuda_caching_allocator", 0.9, "torch.outofmemoryerror"),
    gpu("cuda_caching_allocator", 0.9, "outofmemoryerror: allocation on device"),
    gpu("cuda_caching_allocator", 0.9, "outofmemoryerror: cuda"),
    gpu("cuda_caching_allocator", 0.9, "cuda out of memory"),
    gpu("cuda_caching_allocator", 0.9, "cuda ran out of memory"),
    gpu("cuda_caching_allocator", 0.7,
        "nvml_success == r internal assert failed*cudacachingallocator"),
    possible("cuda_caching_allocator", "internal assert failed*cudacachingallocator"),
    possible("cuda_caching_allocator", "internal assert failed*cudamallocasyncallocator"),
};

// Status codes of CUDA's libraries: that they could not allocate is all that they say.
constexpr std::array kCudaLibraries{
    possible("tensorflow", "profiling failure on cudnn engine"),
    gpu("cublas", 0.9, "cublas_status_alloc_failed"),
    gpu("cublas", 0.85, "cublas*the resource allocation failed"),
    gpu("cublas", 0.8, "cuda error: the resource allocation failed"),
    gpu("cublas", 0.85, "cublas*error 3"),
    gpu("cufft", 0.9, "cufft_alloc_failed"),
    gpu("cusolver", 0.9, "cusolver_status_alloc_failed"),
    gpu("cusparse", 0.9, "cusparse_status_alloc_failed"),
    gpu("cusparse", 0.75, "cusparse_status_insufficient_resources"),
    gpu("curand", 0.9, "curand_status_allocation_failed"),
    gpu("cudnn", 0.9, "cudnn_status_alloc_failed"),
    gpu("cudnn", 0.85, "cudnn_status_internal_error_device_allocation_failed"),
    gpu("hip", 0.9, "rocblas_status_memory_error"),
    gpu("hip", 0.9, "hipblas_status_alloc_failed"),
    gpu("hip", 0.9, "hipfft_alloc_failed"),
    gpu("hip", 0.9, "miopenstatusallocfailed"),
    gpu("hip", 0.7, "miopen*failed to allocate"),
};

constexpr std::array kNccl{
    gpu("nccl", 0.95, "nccl*cuda failure*out of memory"),
    gpu("nccl", 0.85, "cuda failure 'out of memory'"),
    gpu("nccl", 0.85, "cuda failure # 'out of memory'"),
    gpu("nccl", 0.85, "failed to cuda calloc"),
    gpu("nccl", 0.85, "failed to cuda malloc"),
    gpu("hip", 0.85, "hip failure 'out of memory'"),
};

// Those with an own name for it, which outranks the CUDA words inside.
constexpr std::array kFrameworks{
    gpu("onnxruntime", 0.9, "onnx*cuda failure 2: out of memory"),
    host("onnxruntime", 0.75, "_nchwc*bfc_arena*failed to allocate memory for requested buffer"),
    host("onnxruntime", 0.75,
         "cpuexecutionprovider*failed to allocate memory for requested buffer"),
    gpu("onnxruntime", 0.8, "failed to allocate memory for requested buffer of size"),
    gpu("onnxruntime", 0.85, "available memory of # is smaller than requested bytes of"),
    gpu("tensorrt", 0.9, "nvinfer1*out of memory"),
    gpu("tensorrt", 0.9, "outofmemory error in nvinfer1"),
    gpu("tensorrt", 0.9, "error code 2: outofmemory"),
    gpu("tensorrt", 0.9, "[trt]*out of memory"),
    gpu("tensorrt", 0.9, "requested amount of gpu memory*could not be allocated"),
    gpu("jax_xla", 0.95, "resource_exhausted: out of memory"),
    gpu("cupy", 0.95, "cupy*outofmemoryerror"),
    gpu("cupy", 0.9, "out of memory allocating # bytes"),
    gpu("cupy", 0.9, "out of memory to allocate # bytes"),
    gpu("cupy", 0.9, "cudaruntimeerror: cudaerrormemoryallocation"),
    gpu("numba", 0.9, "call to cumem*results in*out_of_memory"),
    gpu("numba", 0.9, "call to cu*results in cuda_error_out_of_memory"),
    gpu("rmm", 0.9, "rmm_error_out_of_memory"),
    gpu("rmm", 0.9, "rmm::out_of_memory"),
    gpu("rmm", 0.9, "bad_alloc: out_of_memory"),
    gpu("rmm", 0.9, "bad_alloc: cuda error*cudaerrormemoryallocation"),
    gpu("rmm", 0.9, "rmm*cudaerrormemoryallocation"),
    gpu("rmm", 0.7, "rmm*maximum pool size exceeded"),
    gpu("rmm", 0.7, "rmm*failed to allocate"),
    gpu("thrust", 0.9, "parallel_for failed: out of memory"),
    gpu("thrust", 0.9, "bad_alloc: cudaerrormemoryallocation"),
    gpu("thrust", 0.9, "bad_alloc: out of memory"),
    gpu("thrust", 0.85, "thrust*cudaerrormemoryallocation"),
    gpu("thrust", 0.85, "failed to get memory buffer"),
    gpu("thrust", 0.75, "thrust::system::detail::bad_alloc"),
    gpu("paddle", 0.95, "out of memory error on gpu"),
    gpu("paddle", 0.9, "cannot allocate # on gpu"),
    gpu("paddle", 0.85, "cannot allocate #*memory on gpu"),
    host("paddle", 0.9, "received posix_memalign*12 != 0"),
    gpu("mxnet", 0.95, "storage_manager*out of memory"),
    gpu("mxnet", 0.8, "cudamalloc failed: out of memory"),
    gpu("mxnet", 0.8, "cudamalloc retry failed: out of memory"),
    gpu("bitsandbytes", 0.85, "error out of memory at line"),
    gpu("caffe", 0.95, "== cudasuccess (2 vs. 0)"),
    gpu("caffe", 0.9, "== cudnn_status_success (2 vs. 0)"),
    gpu("caffe", 0.9, "== cublas_status_success (3 vs. 0)"),
    gpu("theano", 0.9, "cnmem_status_out_of_memory"),
    gpu("theano", 0.9, "error allocating # bytes of device memory"),
    gpu("xgboost", 0.85, "memory allocation error on worker*requested memory"),
    gpu("darknet", 0.9, "cuda error: out of memory*darknet"),
    gpu("triton", 0.85, "triton error [cuda]: out of memory"),
    gpu("julia", 0.9, "out of gpu memory trying to allocate"),
    gpu("deepspeed", 0.85, "deepspeed*cuda*out of memory"),
    gpu("vllm", 0.9, "no available memory for the cache blocks"),
    gpu("vllm", 0.9, "larger than the available kv cache memory"),
    gpu("vllm", 0.85, "larger than the maximum number of tokens that can be stored in kv cache"),
    gpu("vllm", 0.9, "free memory on device*less than desired gpu memory utilization"),
    gpu("vllm", 0.85, "not enough memory*mem-fraction-static"),
    gpu("vllm", 0.85, "not enough memory to handle # prefill tokens"),
    gpu("vllm", 0.85, "not enough gpu memory"),
    gpu("accelerate", 0.7, "make sure you have enough gpu ram to fit"),
};

// XLA (JAX, TPUs) and TensorFlow. RESOURCE_EXHAUSTED alone is also gRPC's word for a quota.
constexpr std::array kXla{
    possible("jax_xla", "ran out of memory in memory space smem"),
    possible("jax_xla", "ran out of memory in memory space vmem"),
    possible("jax_xla", "ran out of memory in memory space cmem"),
    possible("jax_xla", "ran out of memory in memory space sflag"),
    gpu("jax_xla", 0.95, "ran out of memory in memory space hbm"),
    gpu("jax_xla", 0.9, "exceeded hbm capacity"),
    host("tensorflow", 0.9, "oom when allocating tensor*device:cpu"),
    host("tensorflow", 0.9, "oom when allocating tensor*/cpu:0 by allocator"),
    host("tensorflow", 0.85, "allocator (mklcpu) ran out of memory"),
    host("tensorflow", 0.85, "allocator (cpu*) ran out of memory"),
    host("tensorflow", 0.75, "allocator (cuda_host_bfc) ran out of memory"),
    host("tensorflow", 0.75, "allocator (gpu_host_bfc) ran out of memory"),
    gpu("tensorflow", 0.95, "oom when allocating tensor*gpu"),
    gpu("tensorflow", 0.85, "oom when allocating tensor"),
    gpu("tensorflow", 0.85, "allocator (gpu_#_bfc*ran out of memory"),
    gpu("tensorflow", 0.75, "dst tensor is not initialized"),
    gpu("tensorflow", 0.75, "src tensor is not initialized"),
    gpu("tensorflow", 0.7, "tensorflow/*failed to allocate #*hip_error_outofmemory"),
    gpu("tensorflow", 0.7, "cuda_driver.cc*failed to alloc*cuda_error_out_of_memory"),
    gpu("tensorflow", 0.7, "cuda_driver.cc*could not allocate*cuda_error_out_of_memory"),
    gpu("tensorflow", 0.7, "failed to allocate device memory"),
    gpu("jax_xla", 0.9, "resource*exhausted: out of memory while trying to allocate"),
    gpu("jax_xla", 0.85, "resource exhausted: out of memory"),
    gpu("jax_xla", 0.85, "out of memory while trying to allocate # bytes"),
    gpu("jax_xla", 0.9, "resource*exhausted: failed to allocate request for"),
    gpu("jax_xla", 0.85, "resource_exhausted: failed to allocate"),
    gpu("jax_xla", 0.9, "attempting to allocate #*that was not possible"),
    gpu("jax_xla", 0.9, "attempting to reserve #*that was not possible"),
    gpu("jax_xla", 0.85, "error allocating device buffer"),
    gpu("tensorflow", 0.8, "resource_exhausted: oom when"),
    gpu("tensorflow", 0.75, "resourceexhaustederror: graph execution error"),
    gpu("tensorflow", 0.75, "resourceexhaustederror*failed to allocate memory"),
    gpu("tensorflow", 0.75, "resource_exhausted: failed to allocate memory"),
    gpu("tensorflow", 0.75, "resource exhausted: failed to allocate"),
};

// CUDA's runtime and driver, in whatever words a program wraps their codes.
constexpr std::array kCuda{
    gpu("cuda_driver", 0.9, "cuda driver error: out of memory"),
    gpu("cuda_driver", 0.9, "curesult error*result=2"),
    gpu("cuda_driver", 0.9, "cumem*out of memory"),
    gpu("cuda_driver", 0.9, "cumem*cuda_error_out_of_memory"),
    gpu("cuda_runtime", 0.9, "cuda runtime error*(2)"),
    gpu("cuda_runtime", 0.9, "cuda error*out of memory"),
    gpu("cuda_runtime", 0.9, "cuda*error 2: out of memory"),
    gpu("cuda_runtime", 0.9, "cuda*failure*out of memory"),
    gpu("cuda_runtime", 0.9, "cuda*error=2 : out of memory"),
    gpu("cuda_runtime", 0.9, "thcudacheck fail*error=2"),
    gpu("cuda_driver", 0.85, "cuda_error_out_of_memory"),
    gpu("cuda_runtime", 0.9, "cudaerrormemoryallocation"),
    gpu("cuda_runtime", 0.9, "cuda*code=2(cuda"),
    gpu("cuda_runtime", 0.85, "cudamalloc*out of memory"),
    gpu("cuda_runtime", 0.85, "cuda*: out of memory"),
    gpu("cuda_runtime", 0.85, "out of memory*cudamalloc"),
    gpu("cuda_runtime", 0.8, "cudamalloc*failed: insufficient"),
};

constexpr std::array kOtherDevices{
    gpu("hip", 0.9, "hiperroroutofmemory"),
    gpu("hip", 0.9, "hip_error_outofmemory"),
    gpu("hip", 0.9, "hiperrormemoryallocation"),
    gpu("hip", 0.9, "hip error*out of memory"),
    gpu("hip", 0.85, "hip*out of memory"),
    gpu("hip", 0.7, "hsa_status_error_out_of_resources"),
    gpu("hip", 0.75, "failed to allocate*hiperror_t(1002)"),
    gpu("xpu", 0.9, "_error_out_of_device_memory*level*zero"),
    gpu("xpu", 0.9, "ze_result_error_out_of_device_memory"),
    gpu("xpu", 0.9, "ur_result_error_out_of_device_memory"),
    host("xpu", 0.8, "_result_error_out_of_host_memory"),
    gpu("xpu", 0.75, "pi_error_out_of_resources"),
    gpu("xpu", 0.75, "ur_result_error_out_of_resources"),
    gpu("xpu", 0.85, "_error_mem_object_allocation_failure"),
    gpu("mps", 0.95, "kiogpucommandbuffercallbackerroroutofmemory"),
    gpu("mps", 0.9, "insufficient memory (00000008"),
    gpu("mps", 0.8, "attempting to allocate # bytes which is greater than the maximum allowed"),
    gpu("mps", 0.8, "unable to allocate # bytes*metal"),
    gpu("mps", 0.85, "failed to allocate private mtlbuffer"),
    gpu("mps", 0.75, "invalid buffer size: #"),
    gpu("hpu", 0.9, "pt_devmem allocation failed for size"),
    gpu("hpu", 0.85, "workspace allocation*size*failed"),
    gpu("hpu", 0.85, "device memory allocation failed"),
    gpu("npu", 0.85, "aclrtmalloc*207001"),
    gpu("npu", 0.85, "el0004*failed to allocate memory"),
    gpu("npu", 0.85, "npu*out of memory"),
    gpu("opencl", 0.85, "mem_object_allocation_failure"),
    gpu("opencl", 0.85, "memobjectallocationfailure"),
    possible("opencl", "cl_out_of_resources"),
    possible("opencl", "out_of_resources"),
    possible("opencl", "outofresources"),
    possible("opencl", "(out of resources)"),
    host("opencl", 0.75, "cl_out_of_host_memory"),
    host("vulkan", 0.75, "error_out_of_host_memory"),
    gpu("vulkan", 0.85, "vk_error_out_of_device_memory"),
    gpu("vulkan", 0.85, "erroroutofdevicememory"),
    gpu("vulkan", 0.85, "error_out_of_device_memory"),
    gpu("vulkan", 0.7, "outofdevicememory"),
    gpu("webgpu", 0.75, "webgpu*out of memory"),
    gpu("cuda_runtime", 0.8, "out of device memory"),
    gpu("cuda_runtime", 0.8, "gpu*ran out of memory"),
    gpu("cuda_runtime", 0.8, "out of gpu memory"),
    gpu("cuda_runtime", 0.8, "out of vram"),
    gpu("cuda_runtime", 0.8, "insufficient vram"),
    gpu("cuda_runtime", 0.75, "insufficient gpu memory"),
    gpu("cuda_runtime", 0.75, "gpu memory exhausted"),
};

constexpr std::array kGroups{
    Group{"llama.cpp and ggml", kGgml},
    Group{"PyTorch's caching allocators", kTorch},
    Group{"cuBLAS, cuFFT, cuSOLVER, cuSPARSE, cuRAND, cuDNN and AMD's twins", kCudaLibraries},
    Group{"NCCL and RCCL", kNccl},
    Group{"frameworks with words of their own", kFrameworks},
    Group{"XLA and TensorFlow", kXla},
    Group{"CUDA's runtime and driver", kCuda},
    Group{"ROCm, oneAPI, Metal, Gaudi, Ascend, OpenCL, Vulkan", kOtherDevices},
};

}  // namespace

std::span<const Group> gpu_rules() {
  return kGroups;
}

}  // namespace headroom::oom::detail
