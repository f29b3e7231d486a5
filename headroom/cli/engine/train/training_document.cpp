#include "headroom/cli/engine/train/training_document.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "headroom/base/sha256.h"
#include "headroom/cli/engine/train/spill_words.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {
namespace {

// Of the whole model, whether it is in stages or not.
std::string hash_of(train::Step& step) {
  Sha256 hash;
  std::set<std::string> added;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    hash.add({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  };
  for (const bool are_parameters : {true, false})  // first
    for (int stage = 0; stage < step.layout().stages; ++stage) {
      const torch::nn::Module& module = step.module(static_cast<std::size_t>(stage));
      std::set<std::string> buffers;
      for (const auto& buffer : module.named_buffers()) buffers.insert(buffer.key());
      for (const auto& [name, tensor] : libtorch::tensors_of(module))
        if (buffers.contains(name) != are_parameters && added.insert(name).second) add(tensor);
    }
  return hash.hex();
}

Json peak_of(const memory::GpuMemoryStats& now) {
  return {{"allocated_bytes", now.max_allocated.count},
          {"active_bytes", now.max_active.count},
          {"requested_bytes", now.max_requested.count},
          {"reserved_bytes", now.max_reserved.count}};
}

Json cards_of(train::Step& step) {
  Json cards = Json::array();
  const std::vector<c10::Device> devices = step.devices();
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    cards.push_back({{"device", devices[rank].str()},
                     {"replica", step.layout().replica_of(static_cast<int>(rank))},
                     {"stage", step.layout().stage_of(static_cast<int>(rank))},
                     {"peak", peak_of(memory::get_gpu_memory_stats(devices[rank]))}});
  return cards;
}

// The highest of all cards.
Json highest(const Json& cards) {
  Json highest = cards.front().at("peak");
  for (const Json& card : cards)
    for (auto& [name, bytes] : highest.items()) bytes = std::max(bytes, card.at("peak").at(name));
  return highest;
}

// Those of a failed step are only in `heard`; the others know more when their step is committed.
std::vector<train::Event> all_events(const std::vector<train::Event>& heard,
                                     const std::vector<train::Event>& committed) {
  std::vector<train::Event> all;
  std::size_t next = 0;
  for (const train::Event& event : heard) {
    const bool is_known = next < committed.size() && committed[next].kind == event.kind &&
                          committed[next].step == event.step;
    all.push_back(is_known ? committed[next++] : event);
  }
  return all;
}

// The document of a run that ended before it had a trainer.
Json document_without_steps(std::int64_t effective_batch, const std::vector<train::Event>& heard) {
  Json document{{"schema", 1},       {"steps", 0},
                {"samples_seen", 0}, {"effective_batch", effective_batch},
                {"stopped", false},  {"events", Json::array()}};
  for (const char* unknown : {"final_loss", "val_loss", "val_accuracy", "weights_sha256", "device",
                              "plan", "plan_schedule", "resumed_from", "spill", "peak", "cards"})
    document[unknown] = nullptr;
  for (const train::Event& event : heard) document["events"].push_back(to_json(event));
  return document;
}

}  // namespace

Json document_of(const train::Trained& done, train::Step& step, const config::Resolved& config,
                 std::int64_t effective_batch, const std::vector<train::Event>& before) {
  Json events = Json::array();
  for (const train::Event& event : before) events.push_back(to_json(event));
  for (const train::Event& event : done.events) events.push_back(to_json(event));
  const Json cards = cards_of(step);
  Json accuracy;
  if (done.evaluation && done.evaluation->accuracy) accuracy = *done.evaluation->accuracy;
  const std::filesystem::path out = config.text("out");
  return {{"schema", 1},
          {"steps", done.steps},
          {"samples_seen", done.rows},
          {"final_loss", done.steps > 0 ? Json(done.loss) : Json()},
          {"val_loss", done.evaluation ? Json(done.evaluation->loss) : Json()},
          {"val_accuracy", accuracy},
          {"weights_sha256", hash_of(step)},
          {"effective_batch", effective_batch},
          {"device", step.device().str()},
          {"plan", to_json(step.plan())},
          {"plan_schedule", (out / "plan_schedule.jsonl").string()},
          {"resumed_from", or_null(done.resumed_from)},
          {"stopped", done.is_stopped},
          {"events", events},
          {"out_of_memory", Json()},
          {"spill", spill_document(step)},
          {"peak", highest(cards)},
          {"cards", cards}};
}

Json document_of_failure(train::Trainer* trainer, const config::Resolved& config,
                         std::int64_t effective_batch, const std::vector<train::Event>& heard,
                         const std::optional<train::OomReport>& report) {
  Json document = document_without_steps(effective_batch, heard);
  if (trainer != nullptr) {
    train::Trained done = trainer->so_far();
    done.events = all_events(heard, done.events);
    document = document_of(done, trainer->step(), config, effective_batch, {});
  }
  document["out_of_memory"] = report ? to_json(*report) : Json();
  return document;
}

}  // namespace headroom::cli
