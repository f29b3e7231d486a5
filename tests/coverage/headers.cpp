#include "headers.h"

#include <fstream>
#include <regex>
#include <stdexcept>

namespace headroom::coverage {
namespace {

namespace fs = std::filesystem;

// Calls `visit(line, line before, file)` for every line of every header in a folder, not below it.
// The line before is never a comment. Namespaces called `detail`, which are not for users, are left
// out.
template <typename Visit>
void for_each_line(const fs::path& folder, const Visit& visit) {
  if (!fs::is_directory(folder)) throw std::runtime_error("no headers in " + folder.string());
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    std::string before;
    bool detail = false;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("namespace detail", 0) == 0) detail = true;
      if (line.rfind("} // namespace detail", 0) == 0) detail = false;
      if (!detail) visit(line, before, entry.path());
      if (line.rfind("//", 0) != 0) before = line;
    }
  }
}

// Names with an underscore in front are LibTorch's own.
void add(Names& names, const std::string& prefix, const std::string& name) {
  if (name.front() != '_') names.insert(prefix + name);
}

// Functions at the beginning of a line.
const std::regex& function() {
  static const std::regex regex(R"(^(?:TORCH_API )?[A-Za-z][A-Za-z:<>, ]* (\w+)\(.*)");
  return regex;
}

}  // namespace

Names modules_in(const fs::path& torch) {
  static const std::regex macro(R"(^TORCH_MODULE\((\w+)\).*)");
  static const std::regex implementation(R"(^class (?:TORCH_API )?(\w+)Impl\b.*)");
  static const std::regex any(R"(^class (?:TORCH_API )?(\w*AnyModule) \{.*)");
  Names names;
  for (const char* folder : {"nn/modules", "nn/modules/container"})
    for_each_line(torch / folder, [&](const std::string& line, const std::string& before, auto&&) {
      std::smatch match;
      const bool of_template = before.rfind("template", 0) == 0;  // a base of several modules
      if (std::regex_match(line, match, macro) || std::regex_match(line, match, any) ||
          (!of_template && std::regex_match(line, match, implementation)))
        add(names, "", match[1]);
    });
  return names;
}

Names functionals_in(const fs::path& torch) {
  Names names;
  for_each_line(torch / "nn/functional", [&](const std::string& line, auto&&, auto&&) {
    std::smatch match;
    if (std::regex_match(line, match, function())) add(names, "F::", match[1]);
  });
  return names;
}

Names utilities_in(const fs::path& torch) {
  static const std::regex type(R"(^class (\w+) \{.*)");
  Names names;
  for_each_line(torch / "nn/utils", [&](const std::string& line, auto&&, const fs::path& file) {
    const std::string prefix = file.filename() == "rnn.h" ? "utils::rnn::" : "utils::";
    std::smatch match;
    if (std::regex_match(line, match, type) || std::regex_match(line, match, function()))
      add(names, prefix, match[1]);
  });
  return names;
}

Names optimizers_in(const fs::path& torch) {
  static const std::regex type(R"(^class TORCH_API (\w+)\b.*)");
  static const Names bases = {"Optimizer", "OptimizerOptions", "OptimizerParamState",
                              "OptimizerParamGroup", "LRScheduler"};
  Names names;
  for (const char* folder : {"optim", "optim/schedulers"})
    for_each_line(torch / folder, [&](const std::string& line, auto&&, auto&&) {
      std::smatch match;
      if (std::regex_match(line, match, type) && bases.count(match[1]) == 0)
        add(names, "optim::", match[1]);
    });
  return names;
}

const Names& header_names() {
  static const Names all = [] {
    const fs::path torch = fs::path(HEADROOM_TORCH_DIR) / "include/torch/csrc/api/include/torch";
    Names names = modules_in(torch);
    for (const Names& more : {functionals_in(torch), utilities_in(torch), optimizers_in(torch)})
      names.insert(more.begin(), more.end());
    return names;
  }();
  return all;
}

}  // namespace headroom::coverage
