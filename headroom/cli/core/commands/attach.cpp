// `headroom attach`: follows the output of a job that `headroom run --detach` started.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/job/detached.h"
#include "headroom/lease/ledger.h"

namespace headroom::cli {
namespace {

using job::DetachedJob;

struct AttachOptions {
  std::string id;
  bool json = false;
};

// `waiting`: the processes that wait for a lease.
const char* state_of(const DetachedJob& job, const std::set<pid_t>& waiting) {
  if (job.exit_code) return "ended";
  if (!job.is_running()) return "was killed";
  return waiting.contains(job.supervisor.pid) ? "waits" : "runs";
}

std::set<pid_t> waiting_now() {
  std::set<pid_t> pids;
  for (const lease::Waiter& waiter : lease::contents_now().waiting)
    if (lease::is_this_pid_namespace(waiter.pid_namespace)) pids.insert(waiter.owner.pid);
  return pids;
}

Json document(const std::vector<DetachedJob>& jobs, const std::set<pid_t>& waiting) {
  Json json{{"schema", 1}, {"jobs", Json::array()}};
  for (const DetachedJob& job : jobs)
    json["jobs"].push_back({{"id", job.id},
                            {"pid", job.supervisor.pid},
                            {"running", job.is_running()},
                            {"state", state_of(job, waiting)},
                            {"exit_code", or_null(job.exit_code)},
                            {"started", utc_timestamp(job.started)},
                            {"command", job.command},
                            {"output", job.output.string()}});
  return json;
}

ExitCode list(const AttachOptions& options) {
  const std::vector<DetachedJob> jobs = job::detached_jobs();
  const std::set<pid_t> waiting = waiting_now();
  if (options.json) return print(to_line(document(jobs, waiting)) + "\n"), kOk;
  const Terminal terminal = standard_output();
  std::vector<std::vector<std::string>> rows;
  for (const DetachedJob& job : jobs)
    rows.push_back({job.id, state_of(job, waiting),
                    job.exit_code ? std::to_string(*job.exit_code) : "-",
                    local_timestamp(job.started).substr(0, 16),
                    fitted(without_controls(join(job.command, " ")), terminal.is_terminal ? 32 : 60,
                           terminal)});
  print(rows.empty() ? "There are no detached jobs.\n"
                     : table("job|state|>exit|started|command", rows, terminal));
  return kOk;
}

// Prints the output written since the last call; only the job writes the file, and only appends.
void copy_new(int output) {
  std::array<char, 65536> piece{};
  for (ssize_t got = 0; (got = ::read(output, piece.data(), piece.size())) > 0;)
    print({piece.data(), static_cast<std::size_t>(got)});
}

ExitCode follow(const std::string& id) {
  const std::string path = job::detached_job(id).output.string();
  const int output = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (output < 0) throw InputError("attach", "cannot read " + path);
  const Interrupt interrupt;
  while (true) {
    // Reads the state before the output: when the job has ended, its output is complete.
    const DetachedJob job = job::detached_job(id);
    const bool runs = job.is_running();
    copy_new(output);
    if (job.exit_code) return *job.exit_code;
    if (!runs && !job::detached_job(id).exit_code) {
      print_error("headroom attach: job " + id + " was killed, or the machine was restarted\n");
      return kFailed;
    }
    if (runs && !sleep_for(Seconds(0.1), interrupt.token())) {
      print_error("\nheadroom attach: job " + id + " runs on; headroom attach " + id +
                  " follows it again, kill " + std::to_string(job.supervisor.pid) + " ends it\n");
      return interrupt.exit_code();
    }
  }
}

ExitCode run_attach(const AttachOptions& options) {
  return options.id.empty() ? list(options) : follow(options.id);
}

}  // namespace

void add_attach(Registry& registry) {
  auto [command, options] = registry.add(
      &run_attach, "attach", "Follow the output of a detached job",
      "  headroom run --detach --need 10GiB -- python train.py     # prints the job's ID\n"
      "  headroom attach 7f3a9c1e\n"
      "  headroom attach               # lists the jobs of the last two weeks\n\n"
      "Prints the job's output from the beginning. Ctrl-C leaves the job running.\n"
      "Exit: the job's own code.");
  command->add_option("id", options->id, "ID of the job (default: list the jobs)");
  command->add_flag("--json", options->json, "Print the list as one JSON document");
}

}  // namespace headroom::cli
