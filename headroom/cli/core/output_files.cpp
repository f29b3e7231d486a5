#include "headroom/cli/core/output_files.h"

#include <filesystem>

#include "headroom/base/error.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

bool are_one_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) ||
         fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

void check_place(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw WriteError("cannot write " + file + ": there is no folder " + folder.string());
  if (fs::is_directory(file, error)) throw WriteError("cannot write " + file + ": it is a folder");
}

}  // namespace

void check_outputs(std::string_view where, const std::vector<std::string>& files,
                   const std::vector<std::string>& read) {
  std::vector<std::string> before;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    if (file == "-") throw UsageError(expectation(where, "a file to write", "standard output"));
    check_place(file);
    for (const std::string& other : before)
      if (are_one_file(file, other))
        throw UsageError(expectation(where, "another file for each output", file + " twice"));
    for (const std::string& other : read)
      if (!other.empty() && are_one_file(file, other))
        throw UsageError(
            expectation(where, "a file to write that the command does not read", file));
    before.push_back(file);
  }
}

void tell_of_outputs(std::string_view where, const std::vector<std::string>& files) {
  for (const std::string& file : files)
    if (!file.empty()) print_error("headroom " + std::string(where) + ": " + file + " written\n");
}

}  // namespace headroom::cli
