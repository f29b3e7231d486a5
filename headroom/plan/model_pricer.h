// The pricer of published models: seconds by roofline, memory by dry runs of single stages.
//
//   ModelPricer pricer(config, {{settings, book}}, cards, dry_run);
//   const Searched found = search(question, pricer);
//
// A stage alone takes the same memory as among others, to the byte, so one dry run of it is its
// price, wherever equal layers lie. What a stage needs at least, without a dry run, is what stays
// and the activations of the parts that wait; and most of what such a stage with the same rows
// needed beyond that in a dry run. tests/estimate/price_stages_test.cpp holds it against dry runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/plan/price_book.h"
#include "headroom/plan/pricer.h"

namespace headroom::plan {

// Makes the dry run of a stage. It may throw, to say that there is none.
using PriceStage = std::function<StagePrice(const Stage&)>;

// A way to train the model that a search may choose: Form::techniques counts them.
struct PricedTraining {
  model::Settings settings;  // of the stages that are not checkpointed
  PriceBook book;
};

// The cards of a question: each has the rates and links of one of the catalogue.
struct RatedCards {
  std::vector<const gpu::CatalogueCard*> kinds;
  std::vector<int> kind_of_card;
  // The different chips that stages may lie on, which decide about memory; null for that of a card
  // which is only a size.
  std::vector<const gpu::DeviceProfile*> chips = {nullptr};
};

// A number for each layer that a split of the model counts; equal ones are built alike.
[[nodiscard]] std::vector<int> layer_kinds(const model::ModelConfig& config,
                                           const model::Settings& settings);

class ModelPricer final : public Pricer {
 public:
  ModelPricer(model::ModelConfig config, std::vector<PricedTraining> trainings, RatedCards cards,
              PriceStage dry_run);

  [[nodiscard]] std::int64_t layers() const override { return layers_; }
  [[nodiscard]] StageMemory at_least(const Stage& stage) override;
  [[nodiscard]] StageMemory exact(const Stage& stage) override;
  [[nodiscard]] std::vector<LayerTimes> times(const Form& form, int kind) override;
  [[nodiscard]] double hand_over(const Form& form, std::int64_t layer, int from, int to) override;
  [[nodiscard]] double sum_of_gradients(const Stage& stage, const std::vector<int>& cards) override;

  // Of host memory, for the activations of the parts that wait: an estimate by formula. 0 where a
  // training does not offload them.
  [[nodiscard]] Bytes on_host(const Stage& stage);

  [[nodiscard]] std::int64_t dry_runs() const { return dry_runs_; }
  void save();  // the books

 private:
  // Of the first layers together. What comes before the layers is with the first, and a head with
  // the last.
  struct Memory {
    Bytes resident, gradients, kept, kept_checkpointed;
    Memory& operator+=(const Memory& more);
  };
  struct OfRows {
    forecast::Forecast plain, checkpointed;
    std::vector<Memory> upto, surely_upto;  // as it is, and what is certain of it
    std::vector<Memory> moved;              // to the host, of each layer: the kept ones
  };
  // What stages have in common that need the same beyond their least.
  struct Alike {
    Form form;
    bool checkpointed, refills, is_first, is_last;
    auto operator<=>(const Alike&) const = default;
  };

  const OfRows& of_rows(const Form& form, const gpu::DeviceProfile* chip);
  [[nodiscard]] static Memory between(const std::vector<Memory>& upto, const Stage& stage);
  // On the first chip.
  [[nodiscard]] Memory memory_of(const Stage& stage);
  // On the chip that needs the least.
  [[nodiscard]] StageMemory surely(const Stage& stage);
  // Of the tensors of a step.
  [[nodiscard]] static Bytes requested(const Stage& stage, const Memory& memory);
  [[nodiscard]] Alike alike(const Stage& stage) const;
  // The same stage where its kinds of layers come first.
  [[nodiscard]] Stage first_like(Stage stage) const;
  void learn(const Stage& stage, const StagePrice& price);
  [[nodiscard]] const gpu::CatalogueCard& card(int number) const;

  const model::ModelConfig config_;
  std::vector<PricedTraining> trainings_;
  RatedCards cards_;
  PriceStage dry_run_;
  std::int64_t layers_ = 0, dry_runs_ = 0;
  std::vector<std::vector<std::int64_t>> first_like_;  // by count - 1 and first layer
  std::map<std::tuple<int, std::int64_t, const gpu::DeviceProfile*>, OfRows> of_rows_;
  std::map<Stage, StagePrice> known_;
  std::map<Alike, Bytes> beyond_;  // the least that dry runs have shown
};

}  // namespace headroom::plan
