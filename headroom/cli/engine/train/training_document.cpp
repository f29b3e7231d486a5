#include "headroom/cli/engine/train/training_document.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/sha256.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {
namespace {

std::string hash_of(torch::nn::Module& module) {
  Sha256 hash;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    hash.add({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  };
  for (const at::Tensor& parameter : module.parameters()) add(parameter);
  for (const at::Tensor& buffer : module.buffers()) add(buffer);
  return hash.hex();
}

}  // namespace

Json document_of(const train::Trained& done, train::Step& step, const config::Resolved& config,
                 std::int64_t effective_batch, const std::vector<train::Event>& before) {
  Json events = Json::array();
  for (const train::Event& event : before) events.push_back(to_json(event));
  for (const train::Event& event : done.events) events.push_back(to_json(event));
  const auto now = memory::get_gpu_memory_stats(step.device());
  Json accuracy;
  if (done.evaluation && done.evaluation->accuracy) accuracy = *done.evaluation->accuracy;
  const std::filesystem::path out = config.text("out");
  return {{"schema", 1},
          {"steps", done.steps},
          {"samples_seen", done.rows},
          {"final_loss", done.loss},
          {"val_loss", done.evaluation ? Json(done.evaluation->loss) : Json()},
          {"val_accuracy", accuracy},
          {"weights_sha256", hash_of(step.module())},
          {"effective_batch", effective_batch},
          {"device", step.device().str()},
          {"plan", to_json(step.plan())},
          {"plan_schedule", (out / "plan_schedule.jsonl").string()},
          {"resumed_from", or_null(done.resumed_from)},
          {"stopped", done.is_stopped},
          {"events", events},
          {"peak",
           {{"allocated_bytes", now.max_allocated.count},
            {"active_bytes", now.max_active.count},
            {"requested_bytes", now.max_requested.count},
            {"reserved_bytes", now.max_reserved.count}}}};
}

}  // namespace headroom::cli
