"""Out-of-memory as programs of today raise and print it. Wordings: PyTorch 2.5 to 2.8
(c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAException.cpp, aten/src/ATen/cuda/CUDAContextLight,
c10/core/impl/alloc_cpu.cpp), jaxlib 0.4 (XlaRuntimeError), numpy 2 (_ArrayMemoryError), libstdc++."""
import os
import sys


def human(amount):
    """As c10::CachingAllocator::format_size writes it."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= unit:
            return f"{amount / unit:.2f} {name}"
    return f"{amount} bytes"


def kind(module, name, base=RuntimeError):
    """An exception class that Python prints as `module.name: ...`."""
    return type(name, (base,), {"__module__": module})


OutOfMemoryError = kind("torch", "OutOfMemoryError")
AcceleratorError = kind("torch", "AcceleratorError")
XlaRuntimeError = kind("jaxlib.xla_extension", "XlaRuntimeError")
ArrayMemoryError = kind("numpy._core._exceptions", "_ArrayMemoryError", MemoryError)


def pytorch(room):
    others = "".join(f"Process {pid} has {human(used)} memory in use. " for pid, used in room.others)
    context = min(room.mine, 300 << 20)
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {human(room.asked)}. GPU {room.device} has a total "
        f"capacity of {human(room.total)} of which {human(room.free)} is free. {others}"
        f"Including non-PyTorch memory, this process has {human(room.mine)} memory in use. Of the "
        f"allocated memory {human(room.mine - context)} is allocated by PyTorch, and 0 bytes is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
        "for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")


HINTS = ("CUDA kernel errors might be asynchronously reported at some other API call, so the "
         "stacktrace below might be incorrect.\nFor debugging consider passing "
         "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side "
         "assertions.\n")


def runtime(_room):
    return RuntimeError("CUDA error: out of memory\n" + HINTS)


def accelerator(_room):
    return AcceleratorError(
        "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/"
        "cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n" + HINTS)


def cublas(_room):
    return RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def xla(room):
    return XlaRuntimeError(
        f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {room.asked} bytes.")


def illegal_access(_room=None):
    return RuntimeError("CUDA error: an illegal memory access was encountered\n" + HINTS)


CARD = {"pytorch": pytorch, "runtime": runtime, "cublas": cublas, "xla": xla,
        "accelerator": accelerator}


def python(_asked):
    return None  # the MemoryError as it is


def numpy(asked):
    return ArrayMemoryError(f"Unable to allocate {asked / (1 << 20):.3g} MiB for an array with shape "
                            f"({asked // 4},) and data type float32")


def torch_cpu(asked):
    return RuntimeError(f"[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
                        f"allocate memory: you tried to allocate {asked} bytes. Error code 12 (Cannot "
                        "allocate memory)")


def bad_alloc(_asked):
    """An uncaught C++ exception of a library: no traceback, and SIGABRT."""
    sys.stdout.flush()
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n"
                     "  what():  std::bad_alloc\n")
    sys.stderr.flush()
    os.abort()


HOST = {"python": python, "bad_alloc": bad_alloc, "numpy": numpy, "torch_cpu": torch_cpu}
