// Writes docs/reference/simulated-operators.md: what Headroom does with every aten operator that
// has a kernel of CUDA's own. As the backend decides, in the same order. Built with another
// LibTorch than 2.11, what is otherwise there: simulated-operators-2.15.md.
//
//   operator_table              prints the page of 2.11
//   operator_table PAGE         exit status 1 if it is another
//   operator_table PAGE OTHER   for another LibTorch: exit status 1 if OTHER is not what differs
//   from
//                               PAGE; OTHER is - to print it
#include <ATen/core/dispatch/Dispatcher.h>

#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "headroom/libtorch/versions.h"
#include "headroom/sim/dispatch/cuda_operators.h"
#include "headroom/sim/dispatch/derived.h"
#include "headroom/sim/dispatch/operator_facts.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

struct Handling {
  std::string way;
  std::string remark;
};

// In the order of the page.
const std::vector<std::pair<std::string, std::string>> kWays{
    {"kernel", "a kernel of Headroom's own: memory, copies, views"},
    {"rule", "a shape rule of Headroom's own, in the family named beside it"},
    {"Meta", "LibTorch's Meta kernel gives the shapes"},
    {"composite", "LibTorch makes it of other operators, which give the shapes"},
    {"in place", "it writes its arguments, whose shapes stay"},
    {"out=", "the shapes are those of the same operator without `out=`"},
    {"values", "shapes depend on values: in compute mode only, shape-only it fails"},
    {"slow way",
     "no rule yet: shape-only where `Card::set_slow_way` allows to ask the CPU's kernel "
     "over zeros, else it fails"},
    {"refused", "it fails in both modes"}};

bool is_composite(const OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

std::map<std::string, std::string> family_by_operator() {
  std::map<std::string, std::string> families;
  for (const rules::Family& family : rules::families()) {
    rules::Table one;
    family.add(one);
    for (const auto& [name, entry] : one.entries())
      if (entry.rule.arguments > 0) families.emplace(name, family.name);
  }
  return families;
}

Handling handling(const std::string& name, const OperatorHandle& handle) {
  static const std::map<std::string, std::string> families = family_by_operator();
  const detail::Operator& op = detail::operator_of(handle);
  if (handle.hasKernelForDispatchKey(DispatchKey::PrivateUse1) && !is_composite(handle))
    return {"kernel", ""};
  if (op.entry != nullptr && !op.entry->refused.empty()) return {"refused", op.entry->refused};
  if (op.has_rule()) return {"rule", families.at(name)};
  if (op.entry != nullptr && !op.entry->needs_values.empty())
    return {"values", "try " + op.entry->needs_values};
  if (op.on_meta)
    return {handle.hasKernelForDispatchKey(DispatchKey::Meta) ? "Meta" : "composite", ""};
  const detail::Derived derived = detail::derived_from_schema(handle);
  if (derived == detail::Derived::in_place && op.on_cpu) return {"in place", ""};
  if (derived == detail::Derived::out && op.on_cpu) return {"out=", ""};
  if (op.depends_on_values) return {"values", ""};
  if (op.on_cpu) return {"slow way", ""};
  return {"refused", "LibTorch has it for CUDA alone"};
}

OperatorHandle find(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

struct Row {
  std::string name;
  Handling handling;
  [[nodiscard]] std::string text() const {
    return "| `" + name + "` | " + handling.way + " | " + handling.remark + " |\n";
  }
};

std::vector<Row> all_rows() {
  const Simulation box = simulate("1x1GiB");
  std::vector<Row> rows;
  for (const std::string& name : detail::cuda_operators())
    rows.push_back({name, handling(name, find(name))});
  return rows;
}

std::string page() {
  const std::vector<Row> all = all_rows();
  std::map<std::string, int> counts;
  std::string rows;
  for (const Row& row : all) {
    ++counts[row.handling.way];
    rows += row.text();
  }
  std::ostringstream text;
  text << "# Operators on simulated cards\n\n"
          "What Headroom does with each of the "
       << all.size()
       << " aten operators that LibTorch 2.11 has a kernel of CUDA's own for. All others are made\n"
          "of these. Written by `build/bin/operator_table`; a test fails where it is not up to "
          "date. [What 2.15 has\n"
          "otherwise](simulated-operators-2.15.md).\n"
          "\nIn compute mode the CPU's kernel fills the results, whatever gave the shapes.\n\n"
          "| operators | way | what it means |\n|---|---|---|\n";
  for (const auto& [way, meaning] : kWays)
    text << "| " << counts[way] << " | " << way << " | " << meaning << " |\n";
  text << "\nA rule may still refuse what would depend on values: `index.Tensor` and "
          "`masked_select` with a mask that\n"
          "is not known, `repeat_interleave.Tensor` without `output_size`.\n"
          "\n## All of them\n\n| operator | way | remark |\n|---|---|---|\n"
       << rows;
  return text.str();
}

std::string content_of(const std::string& file) {
  std::ifstream input(file);
  std::ostringstream found;
  found << input.rdbuf();
  return found.str();
}

// The rows that are not on the page of 2.11, and the operators of that page that are gone.
std::string changes(const std::string& reference) {
  const std::string before = content_of(reference);
  std::string rows, gone;
  std::set<std::string> here;
  for (const Row& row : all_rows()) {
    here.insert("| `" + row.name + "` |");
    if (before.find("\n" + row.text()) == std::string::npos) rows += row.text();
  }
  std::istringstream lines(before.substr(before.find("## All of them")));
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(" |") + 2);
    if (line.starts_with("| `") && !here.contains(name)) gone += name + " gone | |\n";
  }
  const std::string version = "2." + std::to_string(libtorch::kMinor);
  return "# Operators on simulated cards with LibTorch " + version +
         "\n\nWhat differs from [the table of 2.11](simulated-operators.md): operators with a "
         "kernel of CUDA's own that came or\nwent, or that get their shapes in another way. "
         "Written by `build/torch-" +
         version + "/bin/operator_table`, which\n`scripts/versions.sh " + version +
         "` builds; a test of that build fails where it is not up to date.\n\n"
         "| operator | way | remark |\n|---|---|---|\n" +
         rows + gone;
}

int compare(const std::string& file, const std::string& expected) {
  if (content_of(file) == expected) return 0;
  std::cerr << file
            << " is out of date; the head of tests/sim/operator_table.cpp says how to write it\n";
  return 1;
}

}  // namespace
}  // namespace headroom::sim

int main(int argc, char** argv) {
  using namespace headroom::sim;
  if (argc == 1) return std::cout << page(), 0;
  if (argc == 2) return compare(argv[1], page());
  const std::string expected = changes(argv[1]), file = argv[2];
  if (file == "-") return std::cout << expected, 0;
  return compare(file, expected);
}
