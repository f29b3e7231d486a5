// What looks like an out-of-memory and did no harm: the program went on, or it is no failure.
#include <array>

#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

// The program goes on: what it told of before did not end it.
constexpr std::array kSurvived{
    survived("skipping batch*"),
    survived("skipping this batch"),
    survived("skip this batch"),
    survived("skipping the batch"),
    survived("batch skipped"),
    survived("skipping tactic*"),
    survived("skipping update*"),
    survived("skipping step*memory"),
    survived("skipping sample*"),
    survived("skipped*out of memory"),
    survived("out of memory*skipping"),
    survived("out of memory*skipped"),
    survived("oom*skipping"),
    survived("oom*skipped"),
    survived("ignoring this choice"),
    survived("discarding batch*"),
    survived("batch*discarded"),
    survived("ran out of memory, retrying"),
    survived("ran out of memory when*retrying"),
    survived("out of memory*retrying"),
    survived("out of memory*trying again"),
    survived("out of memory*will retry"),
    survived("out of memory*falling back"),
    survived("out of memory*fall back"),
    survived("out of memory*using cpu"),
    survived("oom*retrying"),
    survived("oom*falling back"),
    survived("retrying with*batch*"),
    survived("retrying with tiled"),
    survived("attempting to recover from oom"),
    survived("out of memory avoided"),
    survived("oom avoided"),
    survived("avoided out of memory"),
    survived("avoided oom"),
    survived("recovered from*oom"),
    survived("recovered from*out of memory"),
    survived("due to cuda oom"),
    survived("to cpu due to"),
    survived("decreasing batch size*"),
    survived("reducing batch size*"),
    survived("reduced batch size*"),
    survived("halving batch size*"),
    survived("trying batch size"),
    survived("reducing*microbatch*"),
    survived("decreasing microbatch*"),
    survived("batch size*failed, trying"),
    survived("clearing cache and retrying"),
    survived("batch will be retrained"),
    survived("microbatch size will be decreased"),
    survived("out of memory*trying #"),
    survived("out of memory*trying batch"),
    survived("oom*trying #"),
    survived("out of memory happened*retract*"),
    survived("out of memory*batch*# -> #"),
    survived("out of memory*bs # -> #"),
    survived("out of memory*fits"),
    survived("too large, using"),
    survived("too big, using"),
    survived("does not fit*using"),
    survived("using batch size*instead"),
    survived("lowering batch size*"),
    survived("batch size set to"),
    survived("new batch size"),
    survived("continuing with*"),
    survived("continuing without"),
    survived("agent starting run"),
    survived("starting trial"),
};

// Statements that are no failure: they say so, they advise, or they count.
constexpr std::array kHarmless{
    harmless("is not a failure"),
    harmless("ran out of memory*not a failure"),
    harmless("out of memory*not a failure"),
    harmless("garbage collection: deallocate"),
    harmless("ggml_cuda_host_malloc*pinned memory"),  // it takes other memory of the host then
    harmless("[gc (allocation failure)"),             // of Java: why it collects
    harmless("pause*(allocation failure)"),
    harmless("allocation failure; scavenge might not succeed"),
    harmless("pytorch allocator cache flushes"),
    harmless("recommended max working set size"),
    harmless("sending sig* when mem"),
    harmless("sigkill when mem"),
    harmless("larger than already allocated shape"),
    harmless("mem avail:"),
    harmless("device memory is insufficient to use tactic"),
    harmless("do not have sufficient workspace memory"),
    harmless("gpu memory allocation error during getbesttactic"),
    harmless("falling back to"),
    harmless("fallback to"),
    harmless("oom handl*"),
    harmless("potential root causes"),
    harmless("killed by sigkill by oom killer due to high memory usage"),
    harmless("killed by the oom killer due to high memory usage"),
    harmless("out of vocabulary"),
    harmless("out-of-vocabulary"),
    harmless("number of oom*"),
};

constexpr std::array kHarmlessGroups{Group{"went on", kSurvived}, Group{"no failure", kHarmless}};

}  // namespace

std::span<const Group> harmless_rules() {
  return kHarmlessGroups;
}

}  // namespace headroom::oom::detail
