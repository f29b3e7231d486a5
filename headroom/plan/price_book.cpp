#include "headroom/plan/price_book.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/sha256.h"

namespace headroom::plan {
namespace {

Json entry_of(const Stage& stage, const StagePrice& price) {
  return {{"part_rows", stage.form.rows},
          {"replicas", stage.form.replicas},
          {"first", stage.first},
          {"count", stage.count},
          {"waiting", stage.waiting},
          {"parts", stage.parts},
          {"rows", stage.rows},
          {"checkpointed", stage.checkpointed},
          {"resident_bytes", price.resident.count},
          {"requested_bytes", price.requested.count},
          {"reserved_bytes", price.reserved.count}};
}

std::pair<Stage, StagePrice> entry_from(const Json& entry) {
  const auto count = [&](const char* key, std::int64_t least) {
    const auto number = entry.at(key).get<std::int64_t>();
    if (number < least) throw InputError("prices", std::string("a wrong ") + key);
    return number;
  };
  return {
      {.form = {.rows = count("part_rows", 1), .replicas = static_cast<int>(count("replicas", 1))},
       .first = count("first", 0),
       .count = count("count", 1),
       .waiting = static_cast<int>(count("waiting", 1)),
       .parts = static_cast<int>(count("parts", 1)),
       .rows = count("rows", 1),
       .checkpointed = entry.at("checkpointed")},
      {.resident = Bytes{count("resident_bytes", 0)},
       .requested = Bytes{count("requested_bytes", 0)},
       .reserved = Bytes{count("reserved_bytes", 0)}}};
}

std::map<Stage, StagePrice> kept_prices(const std::filesystem::path& file,
                                        const std::string& identity) {
  std::map<Stage, StagePrice> prices;
  const auto text = read_file(file);
  if (!text) return prices;
  try {
    const Json document = parse_json(*text, file.string());
    if (to_line(document.at("of")) != identity) return prices;
    for (const Json& entry : document.at("prices")) prices.insert(entry_from(entry));
  } catch (const std::exception&) {
    return {};
  }
  return prices;
}

}  // namespace

PriceBook::PriceBook(const Json& identity, const std::filesystem::path& folder)
    : identity_(to_line(identity)) {
  Sha256 hash;
  hash.add(identity_);
  file_ = (folder.empty() ? state_dir() / "prices" : folder) / (hash.hex().substr(0, 16) + ".json");
  prices_ = kept_prices(file_, identity_);
}

void PriceBook::add(Stage stage, const StagePrice& price) {
  stage.form.techniques = 0;
  prices_[stage] = price;
  is_changed_ = true;
}

void PriceBook::save() {
  if (!is_changed_) return;
  is_changed_ = false;
  prices_.merge(kept_prices(file_, identity_));  // of a program that wrote meanwhile
  Json document = {
      {"schema", 1}, {"of", parse_json(identity_, "identity")}, {"prices", Json::array()}};
  for (const auto& [stage, price] : prices_) document["prices"].push_back(entry_of(stage, price));
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  try {
    write_file_atomically(file_, to_line(document) + "\n");
  } catch (const WriteError&) {
  }
}

}  // namespace headroom::plan
