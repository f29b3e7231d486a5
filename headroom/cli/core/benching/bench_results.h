// The results of a benchmark in its folder, results.json and report.html, whole after each model.
//
//   BenchResults results(question, /*fresh=*/false);
//   if (!results.has("7B")) results.add(benched_model(question, "7B"));
//
// A benchmark that was ended goes on with the model that it was at, if it is asked the same again.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/json.h"
#include "headroom/base/run_folder.h"
#include "headroom/cli/core/benching/bench_question.h"

namespace headroom::cli {

class BenchResults {
 public:
  // Takes the folder. `fresh`: begins anew in any case. Results of another question, and complete
  // ones, move into a folder earlier-N. Throws BusyError and WriteError.
  BenchResults(const BenchQuestion& question, bool fresh);

  [[nodiscard]] bool has(const std::string& model) const;
  // Of those that are done already, "7B, 13B"; "" if there are none.
  [[nodiscard]] const std::string& earlier() const { return earlier_; }
  void add(Json model);
  void complete();
  [[nodiscard]] const Json& document() const { return document_; }

 private:
  void write();

  std::filesystem::path out_;
  RunFolder folder_;
  Json document_;
  std::string earlier_;
};

}  // namespace headroom::cli
