"""How the masquerade answers for each public name of `torch.cuda` and its submodules.

ANSWERED: as CUDA would on the simulated card; the function is in `answers.py`, or in `torch_sim.py` under the
same name. KEPT: torch's own, which works on what is answered. IGNORED: does nothing and returns a value.
REFUSED: raises in a sentence. A name of a submodule is written with it: "nvtx.range_push"; "nvtx.*" stands
for all other names of one. tests/python/cuda_names_test.py fails for a name without a line."""
from __future__ import annotations

from typing import Any

ANSWERED = frozenset("""
    Event Stream StreamContext _is_in_bad_fork _lazy_call _lazy_init can_device_access_peer current_device
    current_stream default_generators default_stream device device_count device_memory_used device_of
    empty_cache get_arch_list get_device_capability get_device_name get_device_properties get_gencode_flags
    get_per_process_memory_fraction get_rng_state get_rng_state_all init initial_seed is_available
    is_bf16_supported is_current_stream_capturing is_initialized is_tf32_supported manual_seed
    manual_seed_all max_memory_allocated max_memory_cached max_memory_reserved mem_get_info memory_allocated
    memory_cached memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict
    reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached
    reset_peak_memory_stats seed seed_all set_device set_per_process_memory_fraction set_rng_state
    set_rng_state_all set_stream stream synchronize _is_compiled _exchange_device _maybe_exchange_device
    nccl.is_available nccl.reduce nccl.version _get_device _get_generator _get_rng_state_offset
    _set_rng_state_offset is_compiled
""".split())

KEPT = frozenset("""
    BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CharStorage CharTensor
    ComplexDoubleStorage ComplexFloatStorage CudaError DeferredCudaCallError DoubleStorage DoubleTensor
    FloatStorage FloatTensor HalfStorage HalfTensor IntStorage IntTensor LongStorage LongTensor
    OutOfMemoryError ShortStorage ShortTensor cudaStatus has_half has_magma
    amp.* comm.* sparse.* amp graphs memory nccl nvtx profiler random sparse streams tunable jiterator gds
    comm green_contexts check_error
    memory_summary caching_allocator_disabled graph_annotations graph_annotations.* graphs.* _graph_annotations.*
    _graph_node_callbacks.*
    _memory_viz.* _device_limits.* _utils.* _sanitizer.* _gpu_trace.* _pin_memory_utils.*
""".split())

IGNORED: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("ipc_collect", "caching_allocator_enable", "reset_accumulated_host_memory_stats",
                     "reset_peak_host_memory_stats", "set_sync_debug_mode"),
                    (None, "nothing of it changes memory")),
    "get_sync_debug_mode": (0, "a simulated card never waits"),
    "get_allocator_backend": ("native", "the allocator that is modelled"),
    "list_gpu_processes": ("", "there is no driver to ask"),
    "memory_usage": (0, "no time passes on a simulated card"),
    "utilization": (0, "no time passes on a simulated card"),
    "temperature": (30, "a simulated card has no sensors"),
    "power_draw": (0, "a simulated card has no sensors"),
    "clock_rate": (0, "a simulated card has no sensors"),
    "host_memory_stats": ({}, "pinned memory is not counted"),
    "host_memory_stats_as_nested_dict": ({}, "pinned memory is not counted"),
    "nvtx.range_push": (0, "no profiler listens"),
    "nvtx.range_pop": (0, "no profiler listens"),
    "nvtx.range_start": (0, "no profiler listens"),
    "nvtx.range_end": (None, "no profiler listens"),
    "nvtx.mark": (None, "no profiler listens"),
    "profiler.start": (None, "no profiler listens"),
    "profiler.stop": (None, "no profiler listens"),
    "profiler.init": (None, "no profiler listens"),
    "tunable.*": (None, "kernels are not tuned, as none runs"),
    "memory._record_memory_history": (None, "`headroom rehearse --snapshot` writes a history"),
    "memory._dump_snapshot": (None, "`headroom rehearse --snapshot` writes a history"),
}

_GRAPHS = "CUDA graphs are not simulated; try the step without them, which needs no less memory"
_POOLS = "a simulated card has one pool of memory; try the script without it"
_DRIVER = "there is no driver behind a simulated card"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables",
                     "export_dot", "export_graph_data"), _GRAPHS),
    **dict.fromkeys(("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator",
                     "caching_allocator_alloc", "caching_allocator_delete"), _POOLS),
    **dict.fromkeys(("cudart", "current_blas_handle", "current_solver_handle", "ExternalStream",
                     "get_stream_from_external", "GreenContext", "green_contexts.*", "gds.*"), _DRIVER),
    "jiterator.*": "a simulated card runs no kernels; try the function in operators of torch",
    "nccl.*": "try torch.distributed",
}

# These two are context managers of torch's own that call what is answered.
KEPT |= {"nvtx.range", "profiler.profile"}


def line_of(name: str) -> str:
    """"answered", "kept", "ignored", "refused", or "" for a name without a line."""
    for candidate in (name, name.rpartition(".")[0] + ".*", name.partition(".")[0] + ".*"):
        for word, lines in (("answered", ANSWERED), ("kept", KEPT), ("ignored", IGNORED),
                            ("refused", REFUSED)):
            if candidate in lines:
                return word
    return ""
