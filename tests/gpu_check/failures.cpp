// Failures as LibTorch throws them: texts alone, and failures that a card is made to have. The
// judgement decides whether a step may be repeated with less memory, so both mistakes count: memory
// that is not recognised, and another failure that is taken for it.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <functional>

#include "headroom/libtorch/failure.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/oom/judgement.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

using oom::Verdict;

// An ambiguous text has several causes, of which memory is one: the judgement is `unknown`, and
// names the library.
enum class Expected { memory, ambiguous, other };

struct Text {
  const char* text;
  Expected expected;
};

const std::vector<Text> kTexts{
    {"CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
     "which 3.00 GiB is free.",
     Expected::memory},
    {"CUDA error: out of memory", Expected::memory},
    {"CUDA driver error: out of memory", Expected::memory},
    {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     Expected::memory},
    {"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
     Expected::ambiguous},
    {"cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Expected::memory},
    {"cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
     Expected::memory},
    {"CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m)`",
     Expected::ambiguous},
    {"CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm( handle, opa, opb, m)`",
     Expected::other},
    {"CUDA error: unspecified launch failure", Expected::other},
    {"CUDA error: too many resources requested for launch", Expected::other},
    {"CUDA error: invalid configuration argument", Expected::other},
    {"CUDA error: the launch timed out and was terminated", Expected::other},
    {"CUDA error: device-side assert triggered", Expected::other},
    {"CUDA error: an illegal memory access was encountered", Expected::other},
    {"CUDA error: misaligned address", Expected::other},
    {"CUDA error: no kernel image is available for execution on the device", Expected::other}};

struct Failure {
  oom::Judgement judgement;
  std::string text;  // the first line; "" if nothing was thrown
};

Failure failure_of(const std::function<void()>& failing) {
  try {
    failing();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return {libtorch::judge(std::current_exception()), what.substr(0, what.find('\n'))};
  }
  return {};
}

Json described(const Failure& failure) {
  return {{"verdict", to_string(failure.judgement.verdict)},
          {"kind", failure.judgement.kind},
          {"confidence", failure.judgement.confidence},
          {"text", failure.text}};
}

Expected judged_as(const Failure& failure) {
  const oom::Judgement& judgement = failure.judgement;
  if (judgement.verdict == Verdict::gpu_oom && is_out_of_memory(judgement)) return Expected::memory;
  return judgement.verdict == Verdict::unknown && !judgement.kind.empty() ? Expected::ambiguous
                                                                          : Expected::other;
}

bool is_gpu_memory(const Failure& failure) {
  return judged_as(failure) == Expected::memory;
}

// The reason why the rest of the card must not be filled; "" if this process has it for itself.
std::string others_on(const Place& place) {
  const auto card = place.of_driver();
  if (!card || !card->memory) return "NVML does not show what else is on the card";
  constexpr double kMostUsed = 0.05;
  if (static_cast<double>(card->memory->used.count) >
      kMostUsed * static_cast<double>(card->memory->total.count))
    return "other processes use the card, which this check would fill for a second";
  return "";
}

// Everything that the driver still gives, in pieces that get smaller. The smallest have segments of
// 2 MiB, those of up to 10 MiB some of 20 MiB.
std::vector<at::Tensor> fill(c10::Device device) {
  std::vector<at::Tensor> held;
  for (std::int64_t bytes = std::int64_t{1} << 30; bytes >= 1 << 20; bytes /= 2) {
    try {
      while (true) held.push_back(at::empty({bytes}, at::device(device).dtype(at::kByte)));
    } catch (const c10::OutOfMemoryError&) {
      continue;  // with smaller pieces
    }
  }
  return held;
}

}  // namespace

Outcome check_texts(Place&) {
  std::vector<std::string> complaints;
  Json figures = Json::array();
  for (const Text& text : kTexts) {
    const Failure failure = failure_of([&] { TORCH_CHECK(false, text.text); });
    figures.push_back(described(failure));
    if (judged_as(failure) != text.expected)
      complaints.push_back(std::string("judged as ") + to_string(failure.judgement.verdict) + ": " +
                           text.text);
  }
  return judged(complaints, std::to_string(kTexts.size()) + " texts", std::move(figures));
}

Outcome check_refusals(Place& place) {
  const c10::Device device = place.open();
  std::vector<std::string> complaints;
  const Failure endless = failure_of(
      [&] { (void)at::empty({std::int64_t{1} << 45}, at::device(device).dtype(at::kByte)); });
  if (!is_gpu_memory(endless)) complaints.push_back("an endless request: " + endless.text);
  if (endless.judgement.asked != Bytes{std::int64_t{1} << 45})
    complaints.emplace_back("the size of the request was not read from: " + endless.text);

  // The first product of two matrices takes cuBLAS's workspace, for which there is no room.
  const at::Tensor a = at::ones({64, 64}, at::device(device)), product = at::empty_like(a);
  (void)memory::clear_gpu_memory(true);
  place.limit(memory::get_gpu_memory_stats(device).reserved);
  const Failure workspace = failure_of([&] {
    at::Tensor out = product;
    at::mm_out(out, a, a);
    memory::memory_of(device).synchronize(device.index());
  });
  place.limit({});
  Json figures{{"endless_request", described(endless)}, {"workspace", described(workspace)}};
  std::string words = "an endless request: " + endless.judgement.kind;
  if (workspace.text.empty()) {
    words += "; cuBLAS took no workspace";
    if (device.is_cuda()) complaints.emplace_back("cuBLAS's workspace was not refused");
  } else {
    if (!is_gpu_memory(workspace)) complaints.push_back("cuBLAS's workspace: " + workspace.text);
    words += "; cuBLAS's workspace: " + workspace.judgement.kind;
  }
  const at::Tensor again = at::mm(a, a);
  if (again[0][0].item<double>() != 64) complaints.emplace_back("the product after it is wrong");
  return judged(complaints, words, std::move(figures));
}

Outcome check_full_card(Place& place) {
  const c10::Device device = place.open();
  if (!device.is_cuda()) return not_run("cuBLAS is CUDA's");
  if (const std::string others = others_on(place); !others.empty()) return not_run(others);
  const at::Tensor a = at::ones({64, 64}, at::device(device));
  at::Tensor product = at::empty_like(a);
  const std::vector<at::Tensor> held = fill(device);
  const Failure failure = failure_of([&] {
    at::mm_out(product, a, a);
    memory::memory_of(device).synchronize(device.index());
  });
  Json figures = Json::object({{"cublas", described(failure)}});
  if (failure.text.empty()) return not_run("cuBLAS had room enough on a full card", figures);
  // CUBLAS_STATUS_NOT_INITIALIZED is ambiguous.
  if (judged_as(failure) == Expected::other)
    return failed("not recognised: " + failure.text, figures);
  return passed(
      (is_gpu_memory(failure) ? "" : "ambiguous, ") + failure.judgement.kind + ": " + failure.text,
      figures);
}

Outcome check_broken_context(Place& place) {
  const c10::Device device = place.open();
  if (!device.is_cuda()) return not_run("a simulated card runs no kernel");
  const at::Tensor table = at::ones({4, 4}, at::device(device));
  const at::Tensor wrong = at::full({8}, 1000, at::device(device).dtype(at::kLong));
  const Failure failure = failure_of([&] {
    (void)at::embedding(table, wrong);  // the kernel asserts that each index is one of the table
    memory::memory_of(device).synchronize(device.index());
  });
  Json figures = Json::object({{"assertion", described(failure)}});
  if (failure.text.empty()) return failed("no error came from the kernel", figures);
  if (is_out_of_memory(failure.judgement))
    return failed("taken for memory: " + failure.text, figures);
  return passed(failure.text, figures);
}

}  // namespace headroom::gpu_check
