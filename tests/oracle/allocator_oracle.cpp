// PyTorch's own caching allocator (libc10_cuda.so of the wheel, on the fake CUDA runtime) as the
// judge of headroom/allocator.
//
//   allocator_oracle fuzz --streams 20000        random streams to both: everything equal?
//   allocator_oracle bend --streams 1000         more than the card has, freed when it asks
//   allocator_oracle compare FILE --capacity N   one stream in the plain form to both
//   allocator_oracle replay FILE --json          to PyTorch's alone, as `headroom trace replay`
//   allocator_oracle print INDEX                 a stream of the fuzzer in the plain form
//   allocator_oracle self-test                   are planted differences found?
#include <link.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/oracle/bending.h"
#include "tests/oracle/fuzz.h"
#include "tests/oracle/minimise.h"

namespace {

using namespace headroom::oracle;
namespace allocator = headroom::allocator;
using Json = nlohmann::ordered_json;

// A judge on top of a real runtime would judge this machine's card.
void expect_only_the_fake_runtime() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* names) {
        if (std::string(library->dlpi_name).find("libcudart") != std::string::npos)
          static_cast<std::vector<std::string>*>(names)->push_back(library->dlpi_name);
        return 0;
      },
      &found);
  if (found.size() == 1 && found[0].find("fake_cuda") != std::string::npos) return;
  std::fprintf(stderr, "allocator_oracle: expected the fake libcudart alone, found:\n");
  for (const std::string& name : found) std::fprintf(stderr, "  %s\n", name.c_str());
  std::exit(1);
}

struct FileOptions {
  std::string file, addresses = "ascending";
  Setup setup;
  bool hold_events = false;
  bool json = false;
};

Stream read(const FileOptions& options) {
  Stream stream{.class_name = "file", .setup = options.setup, .content = {}};
  if (options.hold_events) stream.setup.events = allocator::EventRule::when_told;
  if (options.addresses == "descending")
    stream.setup.addresses = allocator::AddressPolicy::descending;
  if (options.addresses == "lowest") stream.setup.addresses = allocator::AddressPolicy::lowest;
  if (options.file == "-") {
    stream.content = read_plain_form(std::cin);
    return stream;
  }
  std::ifstream in(options.file);
  if (!in) throw std::runtime_error("cannot open " + options.file);
  stream.content = read_plain_form(in);
  return stream;
}

Json current_and_peak(const allocator::StatByPool& stat) {
  return {{"current", stat.all.current}, {"peak", stat.all.peak}};
}

Json document(const allocator::Statistics& s, const std::vector<std::size_t>& refused,
              double events_per_s) {
  return {{"allocated", current_and_peak(s.allocated_bytes)},
          {"active", current_and_peak(s.active_bytes)},
          {"reserved", current_and_peak(s.reserved_bytes)},
          {"requested", current_and_peak(s.requested_bytes)},
          {"inactive_split", current_and_peak(s.inactive_split_bytes)},
          {"segments", current_and_peak(s.segment)},
          {"num_alloc_retries", s.num_alloc_retries},
          {"num_ooms", s.num_ooms},
          {"num_device_alloc", s.num_device_alloc},
          {"num_device_free", s.num_device_free},
          {"num_sync_all_streams", s.num_sync_all_streams},
          {"oom_events", refused},
          {"events_per_s", events_per_s}};
}

int replay(const FileOptions& options) {
  const Stream stream = read(options);
  RealAllocator real(stream.setup, stream.content.settings_texts);
  std::vector<std::size_t> refused;
  const auto& operations = stream.content.operations;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (!real.play(operations[i])) refused.push_back(i);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const double rate = static_cast<double>(operations.size()) / taken.count();
  const Json json = document(real.statistics(), refused, rate);
  std::printf("%s\n", json.dump(options.json ? -1 : 2).c_str());
  return 0;
}

int compare(const FileOptions& options) {
  Stream stream = read(options);
  const Outcome outcome = duel([&] { return stream; });
  if (outcome.differs)
    std::printf("at operation %llu:\n%s\n", static_cast<unsigned long long>(outcome.at),
                outcome.difference);
  else
    std::printf(
        "equal in %llu operations; %llu left out after a fault of the original; figures of "
        "inactive_split %s\n",
        static_cast<unsigned long long>(outcome.compared),
        static_cast<unsigned long long>(outcome.after_fault),
        outcome.order_mattered ? "depend on the order of a hash table" : "equal as well");
  return outcome.differs ? 1 : 0;
}

void add_file_options(CLI::App& command, FileOptions& options) {
  command.add_option("FILE", options.file, "Operations in the plain form; - is standard input")
      ->required();
  command.add_option("--allocator", options.setup.settings, "As PYTORCH_CUDA_ALLOC_CONF");
  command.add_option("--capacity", options.setup.capacity.count, "Bytes of the card");
  command.add_option("--fraction", options.setup.fraction, "set_per_process_memory_fraction");
  command.add_flag("--hold-events", options.hold_events, "Events wait for `y`");
  command.add_option("--addresses", options.addresses, "ascending, descending or lowest");
}

int run(int argc, char** argv) {
  CLI::App app("PyTorch's caching allocator as the judge of ours");
  app.require_subcommand(1);
  FuzzOptions fuzzing;
  FileOptions file;

  CLI::App* fuzz_command = app.add_subcommand("fuzz", "Random streams to both");
  fuzz_command->add_option("--streams", fuzzing.streams);
  fuzz_command->add_option("--seed", fuzzing.seed);
  fuzz_command->add_option("--class", fuzzing.class_name);
  fuzz_command->add_option("--only", fuzzing.only, "The stream with this index");
  fuzz_command->add_option("--jobs", fuzzing.jobs)->check(CLI::PositiveNumber);
  fuzz_command->add_flag("--minimise", fuzzing.minimise);
  fuzz_command->add_flag("--verbose", fuzzing.verbose);
  fuzz_command->add_flag("--keep-going", fuzzing.keep_going, "Past a stream that differs");
  fuzz_command->add_flag("--asking", fuzzing.asking, "The real one asks before it refuses");
  CLI::App* bend_command =
      app.add_subcommand("bend", "Streams that want more than the card has, and free when asked");
  bend_command->add_option("--streams", fuzzing.streams);
  bend_command->add_option("--seed", fuzzing.seed);
  CLI::App* replay_command = app.add_subcommand("replay", "A file to PyTorch's allocator");
  add_file_options(*replay_command, file);
  replay_command->add_flag("--json", file.json, "One line");
  CLI::App* compare_command = app.add_subcommand("compare", "A file to both");
  add_file_options(*compare_command, file);
  std::uint64_t index = 0;
  CLI::App* print_command = app.add_subcommand("print", "A stream of the fuzzer");
  print_command->add_option("INDEX", index)->required();
  print_command->add_option("--seed", fuzzing.seed);
  print_command->add_option("--class", fuzzing.class_name);
  CLI::App* self_test = app.add_subcommand("self-test", "Are planted differences found?");
  CLI11_PARSE(app, argc, argv);

  if (*bend_command) return bend(fuzzing.streams, fuzzing.seed) ? 0 : 1;
  if (*replay_command) return replay(file);
  if (*compare_command) return compare(file);
  if (*print_command)
    std::printf("%s", to_text(make_stream(fuzzing.seed, index, fuzzing.class_name)).c_str());
  if (*print_command) return 0;
  if (*self_test) return finds_planted_differences(1) ? 0 : 1;
  return fuzz(fuzzing) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  expect_only_the_fake_runtime();
  return run(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "allocator_oracle: %s\n", error.what());
  return 1;
}
