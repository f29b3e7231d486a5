// Messages that the host's memory ran out, by who writes them.
#include <array>

#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

constexpr Rule host(std::string_view kind, double confidence, std::string_view pattern) {
  return {Meaning::host, kind, confidence, pattern};
}
constexpr Rule possible(std::string_view kind, std::string_view pattern) {
  return {Meaning::possible, kind, 0.5, pattern};
}

// Who ends processes for want of memory, and says so.
constexpr std::array kKillers{
    host("kernel", 0.95, "out of memory: kill"),
    host("kernel", 0.95, "oom-kill:constraint"),
    host("kernel", 0.9, "invoked oom-killer"),
    host("kernel", 0.9, "oom_reaper: reaped process"),
    host("kernel", 0.9, "memory cgroup out of memory"),
    host("kernel", 0.85, "killed process #*total-vm"),
    host("systemd", 0.9, "killed by the oom killer"),
    host("systemd", 0.9, "failed with result 'oom-kill'"),
    host("systemd", 0.9, "systemd-oomd*killed"),
    host("systemd", 0.9, "due to memory pressure for /"),
    host("earlyoom", 0.9, "low memory! at or below sig"),
    host("earlyoom", 0.85, "sending sig* to process #*badness"),
    host("slurm", 0.95, "oom-kill event"),
    host("slurm", 0.95, "oom_kill event"),
    host("slurm", 0.9, "oom-killed by"),
    host("slurm", 0.9, "step tasks have been oom killed"),
    host("slurm", 0.9, "task #: out of memory"),
    host("slurm", 0.9, "tasks #*: out of memory"),
    host("slurm", 0.9, " out_of_memory "),
    host("slurm", 0.9, "state*out_of_memory"),
    host("slurm", 0.9, "(out_of_memory"),
    host("slurm", 0.85, "<out_of_me+"),
    host("slurm", 0.9, "exceeded*memory limit*being killed"),
    host("slurm", 0.9, "exceeded job memory limit"),
    host("slurm", 0.9, "exceeded step memory limit"),
    host("slurm", 0.9, "exceeded memory limit"),
    host("kubernetes", 0.9, "system oom encountered"),
    host("heroku", 0.85, "memory quota*exceeded"),
    host("htcondor", 0.85, "over memory limit"),
    host("lsf", 0.95, "term_memlimit"),
    host("pbs", 0.9, "job killed: *mem*exceed"),
    host("yarn", 0.9, "beyond*memory limits"),
    host("yarn", 0.9, "killed by yarn for exceeding*memory limits"),
    host("yarn", 0.85, "physical memory used*killing container"),
    host("kubernetes", 0.95, "<oomkilled>: true"),
    host("kubernetes", 0.95, "\"oomkilled\": true"),
    host("kubernetes", 0.95, "reason: oomkilled"),
    host("kubernetes", 0.9, "<oomkilled>"),
    host("kubernetes", 0.9, "\"oom killed\""),
    host("kubernetes", 0.85, "the node was low on resource: memory"),
    host("kubernetes", 0.85, "memory limit of*exceeded"),
    host("ray", 0.9, "killed due to the node running low on memory"),
    host("ray", 0.9, "killed due to memory pressure"),
    host("ray", 0.9, "system memory low at node*killing"),
    host("ray", 0.9, "rayoutofmemoryerror"),
    host("ray", 0.9, "ray.exceptions.outofmemoryerror"),
    host("ray", 0.85, "more than #% of the memory on node"),
    host("dask", 0.75, "worker exceeded #% memory budget"),
    host("colab", 0.9, "using all available ram"),
    host("colab", 0.9, "tried to allocate more memory than is available"),
    host("dataloader", 0.7, "killed by signal: killed"),
    host("compiler", 0.7, "killed (program cc1"),
    host("compiler", 0.7, "killed signal terminated program"),
};

// Allocators of languages and libraries.
constexpr std::array kAllocators{
    host("cpu_allocator", 0.95, "defaultcpuallocator"),
    host("cpu_allocator", 0.9, "you tried to allocate #*buy new ram"),
    host("cpu_allocator", 0.9, "not enough memory: you tried to allocate"),
    host("cpu_allocator", 0.9, "can't allocate memory: you tried to allocate"),
    host("cpu_allocator", 0.9, "posix_memalign*12 vs 0"),
    host("cpu_allocator", 0.85, "cpu memory allocation failed"),
    host("python_memoryerror", 0.95, "memoryerror: unable to allocate"),
    host("python_memoryerror", 0.9, "unable to allocate array with shape"),
    host("python_memoryerror", 0.9, "unable to allocate #*for an array"),
    host("bad_alloc", 0.9, "memoryerror: std::bad_alloc"),
    host("python_memoryerror", 0.9, "_arraymemoryerror"),
    host("python_memoryerror", 0.9, "<memoryerror>"),
    host("bad_alloc", 0.9, "std::bad_alloc"),
    host("bad_alloc", 0.85, "std::bad_array_new_length"),
    host("bad_alloc", 0.9, "bad allocation"),
    host("os_fork", 0.95, "os.fork*cannot allocate memory"),
    host("os_fork", 0.9, "fork*: cannot allocate memory"),
    host("os_fork", 0.9, "[errno 12] cannot allocate memory"),
    host("os_fork", 0.85, "[errno 12] not enough space"),
    host("java", 0.95, "outofmemoryerror: java heap space"),
    host("java", 0.95, "outofmemoryerror: gc overhead"),
    host("java", 0.9, "outofmemoryerror: metaspace"),
    host("java", 0.9, "outofmemoryerror: direct buffer memory"),
    host("java", 0.9, "outofmemoryerror: unable to acquire"),
    host("java", 0.7, "outofmemoryerror: unable to create"),
    host("java", 0.85, "java.lang.outofmemoryerror"),
    host("java", 0.9, "insufficient memory for the java runtime"),
    host("java", 0.9, "os::commit_memory*failed"),
    host("java", 0.85, "could not reserve enough space for*object heap"),
    host("node", 0.95, "javascript heap out of memory"),
    host("node", 0.9, "fatalprocessoutofmemory"),
    host("r", 0.9, "cannot allocate vector of"),
    host("r", 0.9, "cannot allocate buffer"),
    host("r", 0.85, "vector memory exhausted"),
    host("r", 0.8, "can not allocate vector"),
    host("opencv", 0.9, "insufficient memory*outofmemoryerror"),
    host("opencv", 0.85, "(-4:insufficient memory)"),
    host("arrow", 0.9, "arrowmemoryerror"),
    host("arrow", 0.85, "<malloc> of size # failed"),
    host("arrow", 0.85, "<realloc> of size # failed"),
    host("rust", 0.9, "memory allocation of # bytes failed"),
    host("go", 0.9, "fatal error: runtime: out of memory"),
    host("go", 0.9, "runtime: cannot allocate memory"),
    host("compiler", 0.9, "virtual memory exhausted"),
    host("compiler", 0.9, "cc1plus: out of memory"),
    host("compiler", 0.85, "llvm error: out of memory"),
    host("compiler", 0.85, "link failed: memory exhausted"),
    host("dotnet", 0.9, "system.outofmemoryexception"),
    host("matlab", 0.8, "out of memory. type*help memory"),
    host("lua", 0.8, "lua api (not enough memory)"),
    host("lua", 0.8, "luajit: not enough memory"),
    host("julia", 0.75, "outofmemoryerror()"),
    host("perl", 0.75, "<out of memory!"),
    host("awk", 0.85, "run time error: out of memory"),
    host("ruby", 0.85, "failed to allocate memory (nomemoryerror)"),
    host("php", 0.85, "allowed memory size of # bytes exhausted"),
    host("openblas", 0.85, "openblas*memory allocation still failed"),
    host("paddle", 0.85, "out of memory error on cpu"),
};

// Words of the system; the rules before know who says them better.
constexpr std::array kSystem{
    possible("shm", "unable to mmap # bytes from file*cannot allocate memory"),
    possible("loader", "failed to map segment from shared object"),
    host("malloc", 0.85, "cannot allocate memory*errno*12"),
    host("malloc", 0.8, "mmap failed: cannot allocate memory"),
    host("malloc", 0.8, "<mmap*: cannot allocate memory"),
    host("malloc", 0.8, "errno=12"),
    host("malloc", 0.8, "<malloc>*failed: cannot allocate memory"),
    host("malloc", 0.8, "<malloc>*out of memory"),
    host("malloc", 0.8, "out of host memory"),
    host("malloc", 0.8, "out of system memory"),
    host("malloc", 0.8, "out of ram>"),
    host("malloc", 0.8, "not enough ram>"),
    host("malloc", 0.75, "cannot allocate memory"),
    host("malloc", 0.75, "not enough memory resources are available to process this command"),
    host("malloc", 0.75, "paging file is too small"),
};

constexpr std::array kGroups{
    Group{"kernel, schedulers, supervisors", kKillers},
    Group{"languages and libraries", kAllocators},
    Group{"the system's words", kSystem},
};

}  // namespace

std::span<const Group> host_rules() {
  return kGroups;
}

}  // namespace headroom::oom::detail
