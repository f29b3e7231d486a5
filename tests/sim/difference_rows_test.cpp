// The two rule sets part only where an operator has a row, and there as the row says: every
// operator with a CUDA kernel or a rule is run without data under both. What it keeps (its results,
// and what its arguments grew by) differs by the row's bytes; what it needs on the way besides
// differs only where there is a row.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "difference_rows.h"
#include "headroom/sim/dispatch/cuda_operators.h"
#include "headroom/sim/dispatch/derived.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/simulate.h"
#include "operator_case.h"

namespace headroom::sim {
namespace {

using c10::OperatorHandle;
using testing::OperatorCase;
using testing::OperatorCases;
using testing::Variant;
using torch::jit::Stack;

constexpr const char* kSamples = HEADROOM_SOURCE_DIR "/tests/sim/rule_samples.txt";

// With samples of their own here: the cases are written for kernels of the CPU, too.
OperatorCases all_cases() {
  const OperatorCases samples = testing::read_operator_cases(kSamples);
  OperatorCases all = samples;
  for (const auto& [name, one] : testing::read_operator_cases(testing::kOperatorCases))
    if (samples.count(name) == 0) all.emplace(name, one);
  return all;
}

struct Use {
  std::int64_t kept = 0;  // bytes, when the operator has returned
  std::int64_t most = 0;  // bytes, at any moment
  std::string error;      // not empty: it threw
};

Stack on_card(const OperatorHandle& op, const Stack& arguments, const Card& card) {
  return testing::onto(op.schema(), arguments, card.device());
}

Use use_of(const OperatorHandle& op, const Stack& arguments, Card& card, Rules rules) {
  const at::NoGradGuard no_gradients;
  card.set_rules(rules);
  const Stack given = on_card(op, arguments, card);
  Stack stack = given;
  card.reset_peaks();
  const auto requested = [&] { return card.statistics().requested_bytes.all; };
  const std::int64_t before = requested().current;
  Use use;
  try {
    op.callBoxed(&stack);
  } catch (const c10::Error& error) {
    use.error = error.what_without_backtrace();  // a backtrace takes its time
  } catch (const std::exception& error) {
    use.error = error.what();
  }
  use.kept = requested().current - before;
  use.most = requested().peak - before;
  return use;
}

class Differences {
 public:
  void run(const std::string& name) {
    const auto op = testing::find_operator(name);
    const rules::Entry* entry = rules::table().find(name);
    if (!op || (entry != nullptr && !entry->refused.empty())) return;
    for (const OperatorCase& one : testing::cases_of(cases_, name, *op))
      if (one.marks.find_first_of("-?") == std::string::npos)
        for (const Variant& variant : testing::variants_of(one))
          if (failures.count(name) == 0) try_one(name, *op, one, variant);
  }

  std::map<std::string, std::string> failures;
  std::set<std::string> ran, differed;

 private:
  void try_one(const std::string& name, const OperatorHandle& op, const OperatorCase& one,
               const Variant& variant) {
    Stack arguments;
    try {
      arguments = testing::arguments_of(op.schema(), one, variant, out_types(op, one, variant));
    } catch (const std::exception&) {
      return;  // not of this type
    }
    Card& card = box_.card(0);
    const Use cuda = use_of(op, arguments, card, Rules::cuda);
    const Use cpu = use_of(op, arguments, card, Rules::cpu);
    if (!cuda.error.empty() && !cpu.error.empty()) return;
    ran.insert(name);
    if (cuda.kept != cpu.kept || cuda.most != cpu.most) differed.insert(name);
    const std::string problem = problem_of(name, arguments, cuda, cpu);
    if (!problem.empty()) failures.emplace(name, problem + " (" + variant.str() + ")");
  }

  // The types of the results that out= has to take; nothing: none, or not known.
  std::vector<c10::ScalarType> out_types(const OperatorHandle& op, const OperatorCase& one,
                                         const Variant& variant) {
    const auto& arguments = op.schema().arguments();
    const auto functional = detail::without_out(op);
    if (std::none_of(arguments.begin(), arguments.end(), testing::is_out)) return {};
    if (!functional) return {5, variant.type};
    box_.card(0).set_rules(Rules::cuda);
    const at::NoGradGuard no_gradients;
    Stack stack = on_card(
        *functional, testing::arguments_of(functional->schema(), one, variant, {}), box_.card(0));
    functional->callBoxed(&stack);
    std::vector<c10::ScalarType> types;
    for (const at::Tensor& tensor : testing::tensors_of(stack))
      types.push_back(tensor.scalar_type());
    return types;
  }

  static std::string problem_of(const std::string& name, const Stack& arguments, const Use& cuda,
                                const Use& cpu) {
    if (cuda.error.empty() != cpu.error.empty())
      return "under one rule set only: " + cuda.error + cpu.error;
    const auto found = testing::difference_rows().find(name);
    const bool has_row = found != testing::difference_rows().end();
    const std::int64_t row = has_row ? found->second.bytes(arguments) : 0;
    if (cuda.kept - cpu.kept != row)
      return "keeps " + std::to_string(cuda.kept) + " bytes on CUDA and " +
             std::to_string(cpu.kept) + " on the CPU, " +
             (has_row ? "but its row says " + std::to_string(row) + ": " + found->second.words
                      : "and has no row");
    if (!has_row && cuda.most != cpu.most)
      return "needs " + std::to_string(cuda.most) + " bytes on CUDA and " +
             std::to_string(cpu.most) + " on the CPU, and has no row";
    return {};
  }

  Simulation box_ = simulate("1x40GiB", {.cublas_workspaces = false});
  OperatorCases cases_ = all_cases();
};

std::set<std::string> operators() {
  std::set<std::string> names(detail::cuda_operators().begin(), detail::cuda_operators().end());
  for (const auto& [name, entry] : rules::table().entries()) names.insert(name);
  return names;
}

// But for record_stream, whose stream cannot be written as a sample.
bool has_rule(const rules::Entry& entry) {
  return entry.rule.arguments > 0 && entry.refused.empty();
}

TEST(RuleSets, DifferOnlyWhereAnOperatorHasARowAndByItsBytes) {
  Differences differences;
  for (const std::string& name : operators()) differences.run(name);
  for (const auto& [name, why] : differences.failures) ADD_FAILURE() << name << ": " << why;
  EXPECT_GT(differences.ran.size(), 900U);
  for (const auto& [name, entry] : rules::table().entries())
    if (name != "record_stream" && has_rule(entry) && testing::find_operator(name) &&
        differences.ran.count(name) == 0)
      ADD_FAILURE() << name << " has a rule: write a sample of it into " << kSamples;
  for (const auto& [name, row] : testing::difference_rows())
    if (differences.differed.count(name) == 0)
      ADD_FAILURE() << name << " has a row, and no sample under which the rule sets part ("
                    << row.source << ")";
}

// Rules of an operator that only other versions have are never looked up here.
TEST(RuleSets, AreOfOperatorsThatSomeVersionHas) {
  const std::vector<std::string> all = detail::cuda_operators_of_all_versions();
  const std::set<std::string> elsewhere(all.begin(), all.end());
  for (const auto& [name, entry] : rules::table().entries())
    EXPECT_TRUE(testing::find_operator(name) || elsewhere.contains(name)) << name;
}

TEST(RuleSamples, NameExistingOperators) {
  for (const auto& [name, one] : testing::read_operator_cases(kSamples))
    EXPECT_TRUE(testing::find_operator(name)) << name;
}

}  // namespace
}  // namespace headroom::sim
