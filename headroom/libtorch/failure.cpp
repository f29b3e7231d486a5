#include "headroom/libtorch/failure.h"

#include <c10/util/Exception.h>

#include <new>
#include <optional>
#include <string>

#include "headroom/base/error.h"
#include "headroom/oom/classify.h"

namespace headroom::libtorch {
namespace {

using oom::Judgement;
using oom::Verdict;

constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation

struct Cause {
  std::string text;
  std::optional<Judgement> by_type;  // judged by the type alone
};

Judgement sure(Verdict verdict, const char* kind) {
  return {.verdict = verdict, .kind = kind, .confidence = 1};
}

// The first line: LibTorch adds its own call stack.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Cause cause_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::OutOfMemoryError& error) {
    return {error.what_without_backtrace(), sure(Verdict::gpu_oom, "cuda_caching_allocator")};
  } catch (const c10::AcceleratorError& error) {
    if (error.get_error_code() != kMemoryAllocation) return {error.what_without_backtrace(), {}};
    return {error.what_without_backtrace(), sure(Verdict::gpu_oom, "cuda_runtime")};
  } catch (const c10::Error& error) {
    return {error.what_without_backtrace(), {}};
  } catch (const OutOfMemoryError& error) {
    return {error.what(), sure(Verdict::gpu_oom, "headroom")};
  } catch (const std::bad_alloc& error) {
    return {error.what(), sure(Verdict::host_oom, "bad_alloc")};
  } catch (const std::exception& error) {
    return {error.what(), {}};
  } catch (...) {
    return {};
  }
}

std::exception_ptr nested_in(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::nested_exception& outer) {
    return outer.nested_ptr();
  } catch (...) {
    return nullptr;
  }
}

// The text gives the amounts, where it names them.
Judgement with_figures(Judgement judgement, const Cause& cause) {
  const Judgement of_text = oom::classify({.text = cause.text});
  judgement.asked = of_text.asked;
  judgement.total = of_text.total;
  judgement.free = of_text.free;
  judgement.cached = of_text.cached;
  judgement.device = of_text.device;
  judgement.evidence = first_line(cause.text);
  return judgement;
}

}  // namespace

Judgement judge(const std::exception_ptr& failure) {
  std::string text;  // causes come before their consequences, as in a program's output
  for (std::exception_ptr at = failure; at != nullptr; at = nested_in(at)) {
    const Cause cause = cause_of(at);
    if (cause.by_type) return with_figures(*cause.by_type, cause);
    text = cause.text + '\n' + text;
  }
  return oom::classify({.text = text});
}

bool is_out_of_memory(const std::exception_ptr& failure) {
  return oom::is_out_of_memory(judge(failure));
}

}  // namespace headroom::libtorch
