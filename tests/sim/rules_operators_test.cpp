// Every aten operator with a CUDA kernel, over types and layouts: a simulated card that computes
// gives the CPU's results to the bit, and one without data gives the same shapes and sizes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "headroom/sim/dispatch/cuda_operators.h"
#include "headroom/sim/dispatch/derived.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/simulate.h"
#include "operator_case.h"

namespace headroom::sim {
namespace {

using at::Tensor;
using c10::IValue;
using c10::OperatorHandle;
using testing::onto;
using testing::OperatorCase;
using testing::tensors_of;
using testing::Variant;
using torch::jit::Stack;

// The results, then the arguments as the call left them.
struct Outcome {
  std::vector<Tensor> tensors;
  std::string error;  // not empty: what it threw
};

Outcome call(const OperatorHandle& op, Stack stack) {
  const at::NoGradGuard no_gradients;
  Outcome outcome;
  const std::vector<Tensor> arguments = tensors_of(stack);
  try {
    op.callBoxed(&stack);
    outcome.tensors = tensors_of(stack);
    outcome.tensors.insert(outcome.tensors.end(), arguments.begin(), arguments.end());
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.resolve_conj().resolve_neg().contiguous();
  const Tensor y = b.resolve_conj().resolve_neg().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::string words(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes() << " strides " << tensor.strides();
  return text.str();
}

// The first difference; empty: none.
std::string difference(const Outcome& one, const Outcome& other, bool bits, bool strides) {
  if (one.tensors.size() != other.tensors.size()) return "not as many results";
  for (std::size_t i = 0; i < one.tensors.size(); ++i) {
    const Tensor& a = one.tensors[i];
    const Tensor& b = other.tensors[i];
    if (a.defined() != b.defined()) return "a result is missing";
    if (!a.defined()) continue;
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() ||
        (strides && a.numel() > 1 && a.strides() != b.strides()))
      return words(a) + " against " + words(b);
    if (bits && !same_bits(a, b.cpu())) return "other values";
    if (!bits && a.storage().nbytes() != b.storage().nbytes())
      return words(a) + ": " + std::to_string(a.storage().nbytes()) + " bytes against " +
             std::to_string(b.storage().nbytes());
  }
  return {};
}

class Operators {
 public:
  Operators() : box_(simulate("2x4GiB", {.mode = Mode::compute, .check_streams = true})) {
    box_.card(1).set_mode(Mode::shape_only);
    at::set_num_threads(1);
  }

  // Tries the operator with each of its cases; says what is wrong.
  void run(const std::string& name) {
    if (const char* only = std::getenv("ONLY_OPERATOR"); only != nullptr && name != only) return;
    const auto op = testing::find_operator(name);
    if (!op) return fail(name, "LibTorch does not know it");
    // 2.12 to 2.14 have these for CUDA alone.
    if (name.starts_with("_philox") && !op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
      return left_out_.push_back(name), void();
    const rules::Entry* entry = rules::table().find(name);
    if (entry != nullptr && !entry->refused.empty()) return refused_.push_back(name), void();
    const std::vector<OperatorCase> cases = testing::cases_of(cases_, name, *op);
    for (const OperatorCase& one : cases)
      if (one.marks == "-") return left_out_.push_back(name), void();
    bool ran = false;
    for (const OperatorCase& one : cases)
      for (const Variant& variant : testing::variants_of(one))
        if (!failed(name)) ran |= try_one(name, *op, one, variant);
    if (ran)
      ran_.push_back(name);
    else if (!failed(name))
      fail(name, "no case of it runs on the CPU: " + last_error_);
  }

  [[nodiscard]] const std::map<std::string, std::string>& failures() const { return failures_; }
  void report() const {
    std::cout << ran_.size() << " operators run in " << calls_ << " calls, " << refused_.size()
              << " are refused, " << left_out_.size() << " left out\n";
  }

 private:
  void fail(const std::string& name, const std::string& why) { failures_.emplace(name, why); }
  [[nodiscard]] bool failed(const std::string& name) const { return failures_.count(name) > 0; }

  // The types of the results that out= has to take.
  std::vector<c10::ScalarType> out_types(const OperatorHandle& op, const OperatorCase& one,
                                         const Variant& variant) const {
    std::vector<c10::ScalarType> types;
    if (std::none_of(op.schema().arguments().begin(), op.schema().arguments().end(),
                     testing::is_out))
      return types;
    const auto functional = detail::without_out(op);
    if (!functional) return {5, variant.type};
    Stack stack = testing::arguments_of(functional->schema(), one, variant, {});
    const at::NoGradGuard no_gradients;
    functional->callBoxed(&stack);
    for (const Tensor& tensor : tensors_of(stack)) types.push_back(tensor.scalar_type());
    return types;
  }

  bool try_one(const std::string& name, const OperatorHandle& op, const OperatorCase& one,
               const Variant& variant) {
    Stack arguments;
    try {
      arguments = testing::arguments_of(op.schema(), one, variant, out_types(op, one, variant));
    } catch (const std::exception& error) {
      last_error_ = error.what();
      return false;
    }
    const Stack with_data = onto(op.schema(), arguments, box_.device(0));
    const Stack without_data = onto(op.schema(), arguments, box_.device(1));
    const bool on_cpu = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    at::Generator generator_of_cpu = at::detail::getDefaultCPUGenerator();
    generator_of_cpu.set_current_seed(5);
    const Outcome expected = on_cpu ? call(op, arguments) : Outcome{};
    if (!expected.error.empty()) {
      last_error_ = expected.error;
      return false;
    }
    ++calls_;
    at::Generator generator = box_.card(0).generator();
    generator.set_current_seed(5);
    const Outcome computed = call(op, with_data);
    const Outcome planned = call(op, without_data);
    const std::string problem = problem_of(one, on_cpu, expected, computed, planned);
    if (!problem.empty()) fail(name, problem + " (" + variant.str() + ")");
    return problem.empty();
  }

  static std::string problem_of(const OperatorCase& one, bool on_cpu, const Outcome& expected,
                                const Outcome& computed, const Outcome& planned) {
    const auto marked = [&](char mark) { return one.marks.find(mark) != std::string::npos; };
    if (!computed.error.empty()) return "computing: " + computed.error;
    if (on_cpu) {
      const std::string problem = difference(expected, computed, !marked('!'), !marked('^'));
      if (!problem.empty()) return "CPU against computing: " + problem;
    }
    // The values of integer arguments are known, and then so are the results.
    if (marked('?') && !planned.error.empty())
      return planned.error.find("expected values, on which the shape") == std::string::npos
                 ? "without values it should not run: " + planned.error
                 : "";
    if (!planned.error.empty()) return "shape-only: " + planned.error;
    const std::string problem = difference(computed, planned, marked('?'), true);
    return problem.empty() ? "" : "computing against shape-only: " + problem;
  }

  Simulation box_;
  testing::OperatorCases cases_ = testing::read_operator_cases(testing::kOperatorCases);
  std::vector<std::string> ran_, refused_, left_out_;
  std::map<std::string, std::string> failures_;
  std::string last_error_;
  std::size_t calls_ = 0;
};

// A quarter of them a test, so that they run side by side.
class EveryOperator : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EveryOperator, GivesTheCpusResultsAndTheSameShapesWithoutData) {
  Operators operators;
  const std::vector<std::string>& names = detail::cuda_operators();
  for (std::size_t i = GetParam(); i < names.size(); i += 4) operators.run(names[i]);
  operators.report();
  for (const auto& [name, why] : operators.failures()) ADD_FAILURE() << name << ": " << why;
}

INSTANTIATE_TEST_SUITE_P(Quarters, EveryOperator, ::testing::Range(std::size_t{0}, std::size_t{4}));

// Some exist only in other versions of LibTorch.
TEST(OperatorCases, NameExistingOperators) {
  const std::vector<std::string> elsewhere = detail::cuda_operators_of_all_versions();
  for (const auto& [name, one] : testing::read_operator_cases(testing::kOperatorCases))
    EXPECT_TRUE(name.back() == '*' || testing::find_operator(name) ||
                std::find(elsewhere.begin(), elsewhere.end(), name) != elsewhere.end())
        << name;
}

}  // namespace
}  // namespace headroom::sim
