// `headroom doctor`: checks everything that GPU work needs, and says how to fix missing parts.
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/cli/core/doctor_checks.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/version.h"

namespace headroom::cli {
namespace {

struct DoctorOptions {
  bool json = false;
  std::string bundle;
};

const char* name_of(Status status) {
  constexpr const char* kNames[] = {"pass", "warn", "fail"};
  return kNames[static_cast<int>(status)];
}

Json document(const std::vector<Check>& checks) {
  Json json{{"schema", 1}, {"version", kVersion}, {"checks", Json::array()}};
  for (const Check& check : checks)
    json["checks"].push_back({{"name", check.name},
                              {"status", name_of(check.status)},
                              {"found", check.found},
                              {"try", check.to_try.empty() ? Json() : Json(check.to_try)},
                              {"details", check.details}});
  return json;
}

std::string report(const std::vector<Check>& checks, const Terminal& terminal) {
  std::string out;
  for (const Check& check : checks) {
    const Colour colour = check.status == Status::pass   ? Colour::green
                          : check.status == Status::warn ? Colour::yellow
                                                         : Colour::red;
    // In a pipe a check is one line, for grep.
    const int width = terminal.is_terminal ? terminal.width - 1 : 100'000;
    out += wrapped(check.name + ": " + check.found,
                   terminal.paint(name_of(check.status), colour) + "  ", "      ", width);
    for (const std::string& line : check.details) out += wrapped(line, "      ", "      ", width);
    if (!check.to_try.empty()) out += wrapped("try: " + check.to_try, "      ", "      ", width);
  }
  return out;
}

// The report without the names of this user and machine, to send to others.
std::string scrubbed(std::string text) {
  const auto replace = [&](const std::string& secret, const std::string& by) {
    for (std::size_t at = 0; secret.size() > 2 && (at = text.find(secret, at)) != std::string::npos;
         at += by.size())
      text.replace(at, secret.size(), by);
  };
  replace(environment("HOME").value_or(""), "~");
  replace(environment("USER").value_or(""), "USER");
  replace(environment("HOSTNAME").value_or(""), "HOST");
  return text;
}

ExitCode run_doctor(const DoctorOptions& options) {
  const auto checks = run_checks();
  const Json json = document(checks);
  if (!options.bundle.empty()) write_file_atomically(options.bundle, scrubbed(json.dump(2)) + "\n");
  print(options.json ? to_line(json) + "\n" : report(checks, standard_output()));
  for (const Check& check : checks)
    if (check.status == Status::fail) return kFailed;
  return kOk;
}

}  // namespace

void add_doctor(Registry& registry) {
  auto [command, options] =
      registry.add(&run_doctor, "doctor", "Check the driver, CUDA, settings and LibTorch",
                   "  headroom doctor\n"
                   "  headroom doctor --json\n"
                   "  headroom doctor --bundle report.json   # to attach to a bug report\n\n"
                   "Exit: 0 all checks pass or warn, 1 a check failed.");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->add_option("--bundle", options->bundle,
                      "Also write the report to this file, without the names of users and machine");
}

}  // namespace headroom::cli
