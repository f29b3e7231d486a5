// A profile: what the operators of a piece of a program allocated, and how long they took. It is
// a plain value, in rows by operator, by operator and shapes, or by module.
//
//   const Profile profile = ...;            // from a Profiler (profiler.h)
//   say(table(profile));                    // the ten rows that allocated most
//   for (const ProfileRow& row : rows(profile, {.sort_by = "self_cpu_s", .row_limit = 0})) ...
//
// Bytes are those of all allocations made while the operator ran, whether it freed them again or
// not. `self` counts an allocation for the innermost operator alone, so the self figures of all
// rows add up to all allocations; a total counts it for every operator that was running on that
// thread. `kept` is PyTorch's figure "Self CUDA Mem": allocated minus freed, which is negative for
// an operator that frees older tensors.
//
// Device bytes are the requested ones on a simulated card, as in a dry run's trace. On CUDA
// they are those of PyTorch's profiler, which reports blocks: each request rounded up to 512 bytes.
//
// A range (at::RecordFunction, torch.profiler.record_function) is a row beside the operators. Work
// of autograd's own threads belongs to no range of the thread that called backward().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/trace/event.h"

namespace headroom::profile {

enum class CallKind : std::uint8_t {
  operation,   // an operator, or a node of autograd's graph
  range,       // of the program
  allocation,  // memory without a call of its own, such as a cuBLAS workspace; "[memory]" is
               // memory that the program itself allocated or freed
  module,      // only as a row
};

// One call, or one range that the program opened. All figures are its own, without the calls that
// it made.
struct Call {
  trace::Name name = 0, module = 0;
  trace::Name shapes = 0;  // of its inputs, as JSON
  CallKind kind = CallKind::operation;
  std::int32_t parent = -1;  // an earlier call
  std::uint64_t thread = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // on the CPU, with the calls that it made
  double device_s = 0;
  Bytes device, kept;  // on all devices but the CPU
  Bytes cpu;
};

// The memory that a device has allocated since the profile began, less what it freed.
struct MemorySample {
  std::int64_t time_ns = 0;
  trace::Name device = 0;  // "cuda:0"
  Bytes allocated;
};

struct Profile {
  std::vector<Call> calls;  // by their start
  std::vector<MemorySample> samples;
  trace::Names names;
  bool has_device = false;      // a device other than the CPU was used
  bool knows_modules = false;   // else all calls belong to module ""
  bool simulated_time = false;  // device time is the cost model's
  std::string rates_of = {};    // then: the card whose rates it takes, "RTX 4090"
};

// An operator whose only call is one of its own name (aten::mean of aten::mean.dim) counts once,
// as in PyTorch's table.
[[nodiscard]] Profile without_repeated_calls(Profile profile);

// ---- Rows ----

enum class GroupBy : std::uint8_t { operation, shape, module };
// "operator", "shape" or "module". Throws UsageError.
[[nodiscard]] GroupBy group_named(std::string_view name);
[[nodiscard]] std::string_view to_string(GroupBy group);

// A figure whose name begins with self_ leaves out the operators that it called; the others include
// it. A module's figures include those of the modules inside it.
struct ProfileRow {
  std::string name;  // "" as a module: the whole profile, or work of no known module
  CallKind kind = CallKind::operation;
  std::int64_t calls = 0;   // of a module: of its operators and ranges; without calls: allocations
  std::string shapes = {};  // as JSON, or "" if its calls differ
  double cpu_s = 0, self_cpu_s = 0;
  std::optional<double> device_s = {}, self_device_s = {};  // std::nullopt without a device
  Bytes self_bytes, total_bytes, self_kept;                 // on devices
  Bytes cpu_bytes, self_cpu_bytes;
};

struct ProfileView {
  // A figure of ProfileRow ("self_bytes"), "name", or PyTorch's name of one
  // ("self_cuda_memory_usage", "cpu_time_total"). Ties are broken by the other figures.
  std::string sort_by = "self_bytes";
  std::size_t row_limit = 10;  // 0: all rows
  GroupBy group_by = GroupBy::operation;
};

// The names that `sort_by` takes, PyTorch's left out.
[[nodiscard]] std::vector<std::string> sort_keys();

// All three throw UsageError for a sort_by that is not a figure.
[[nodiscard]] std::vector<ProfileRow> rows(const Profile& profile, const ProfileView& view = {});
// The rows as text of at most `width` columns, which holds figures and 20 columns of names.
[[nodiscard]] std::string table(const Profile& profile, const ProfileView& view = {},
                                std::size_t width = 100);
[[nodiscard]] Json to_json(const Profile& profile, const ProfileView& view = {});

// Writes calls and memory for ui.perfetto.dev and chrome://tracing. Throws WriteError.
void write_chrome(const Profile& profile, const std::string& path);

}  // namespace headroom::profile
