#include "headroom/plan/store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"

namespace headroom::plan {
namespace {

constexpr std::size_t kMostEntries = 200;
// An entry still applies when up to 2% less memory is free than it worked with: CUDA contexts and
// displays come and go.
constexpr double kSameFree = 1.02;

struct Entry {
  std::string job, card;
  Remembered remembered;
};

std::int64_t seconds_of(WallTime when) {
  return std::chrono::duration_cast<std::chrono::seconds>(when.time_since_epoch()).count();
}

// ---- The file ----

Entry entry_of(const Json& json) {
  Entry entry{
      .job = json.at("job").get<std::string>(),
      .card = json.at("card").get<std::string>(),
      .remembered = {.values = {},
                     .peak = {},
                     .free = Bytes(json.at("free_bytes").get<std::int64_t>()),
                     .tried_up_to = {},
                     .when = WallTime(std::chrono::seconds(json.at("when").get<std::int64_t>()))}};
  entry.remembered.tried_up_to =
      Bytes(json.value("tried_up_to_bytes", entry.remembered.free.count));
  for (const auto& [name, value] : json.at("values").items())
    entry.remembered.values[name] = value.get<long long>();
  if (!json.at("peak_bytes").is_null())
    entry.remembered.peak = Bytes(json.at("peak_bytes").get<std::int64_t>());
  return entry;
}

Json json_of(const Entry& entry) {
  const Remembered& known = entry.remembered;
  Json values = Json::object();
  for (const auto& [name, value] : known.values) values[name] = value;
  return {{"job", entry.job},
          {"card", entry.card},
          {"free_bytes", known.free.count},
          {"tried_up_to_bytes", known.tried_up_to.count},
          {"values", values},
          {"peak_bytes", or_null(known.peak)},
          {"when", seconds_of(known.when)}};
}

// std::nullopt if the text is not a plan file.
std::optional<std::vector<Entry>> entries_of(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != 1) return {};
    std::vector<Entry> entries;
    for (const Json& entry : json.at("entries")) entries.push_back(entry_of(entry));
    return entries;
  } catch (const Json::exception&) {
    return {};
  }
}

std::string text_of(const std::vector<Entry>& entries) {
  std::string text = "{\"schema\":1,\"entries\":[";
  for (std::size_t i = 0; i < entries.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + headroom::to_line(json_of(entries[i]));
  return text + "\n]}\n";
}

// ---- One writer at a time ----

// Holds the store's lock for as long as it is open.
Descriptor locked(const std::filesystem::path& store) {
  std::error_code ignored;  // open() below reports the reason
  std::filesystem::create_directories(store.parent_path(), ignored);
  const auto path = std::filesystem::path(store).replace_extension(".lock");
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.is_open()) throw WriteError("plans", write_failure(path, errno));
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) throw WriteError("plans", write_failure(path, errno));
  return file;
}

// Renames an unreadable file to FILE.broken, so that a user can inspect it.
std::vector<Entry> read_to_change(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text) return {};
  if (auto entries = entries_of(*text)) return *std::move(entries);
  std::error_code ignored;  // if renaming fails, the file is overwritten
  std::filesystem::rename(file, file.string() + ".broken", ignored);
  return {};
}

void change(const std::filesystem::path& file,
            const std::function<void(std::vector<Entry>&)>& how) {
  const Descriptor lock = locked(file);
  std::vector<Entry> entries = read_to_change(file);
  how(entries);
  if (entries.size() > kMostEntries)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMostEntries));
  write_file_atomically(file, text_of(entries));
}

// ---- Choosing ----

// The text as it reads back from the file: a command line may contain invalid UTF-8.
std::string as_text(const std::string& bytes) {
  return Json::parse(headroom::to_line(Json(bytes))).get<std::string>();
}

bool is_about(const Entry& entry, const Setup& setup) {
  return entry.card == setup.card && entry.job == as_text(setup.job);
}

bool fits(const Entry& entry, const Setup& setup) {
  return static_cast<double>(entry.remembered.free.count) <=
         kSameFree * static_cast<double>(setup.free.count);
}

long long batch_of(const Remembered& remembered) {
  const auto batch = remembered.values.find("batch");
  return batch == remembered.values.end() ? 0 : batch->second;
}

}  // namespace

Store::Store(std::filesystem::path file)
    : file_(file.empty() ? state_dir() / "plans.json" : std::move(file)) {}

std::optional<Remembered> Store::find(const Setup& setup) const {
  const auto text = read_file(file_);
  const auto entries = text ? entries_of(*text) : std::nullopt;
  std::optional<Remembered> best;
  for (const Entry& entry : entries.value_or(std::vector<Entry>{})) {
    if (!is_about(entry, setup) || !fits(entry, setup)) continue;
    if (!best || batch_of(entry.remembered) >= batch_of(*best)) best = entry.remembered;
  }
  return best;
}

void Store::remember(const Setup& setup, const std::map<std::string, long long>& values,
                     std::optional<Bytes> peak) const {
  change(file_, [&](std::vector<Entry>& entries) {
    Entry fresh{.job = as_text(setup.job),
                .card = setup.card,
                .remembered = {.values = values,
                               .peak = peak,
                               .free = setup.free,
                               .tried_up_to = setup.free,
                               .when = std::chrono::system_clock::now()}};
    const auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
      return is_about(entry, setup) && entry.remembered.values == values;
    });
    if (same != entries.end()) {  // values that worked with less memory work with more
      fresh.remembered.free = std::min(fresh.remembered.free, same->remembered.free);
      fresh.remembered.tried_up_to =
          std::max(fresh.remembered.tried_up_to, same->remembered.tried_up_to);
      fresh.remembered.peak = std::max(fresh.remembered.peak, same->remembered.peak);
      entries.erase(same);
    }
    entries.push_back(std::move(fresh));
  });
}

void Store::forget(const Setup& setup, const std::map<std::string, long long>& values) const {
  change(file_, [&](std::vector<Entry>& entries) {
    std::erase_if(entries, [&](const Entry& entry) {
      return is_about(entry, setup) && fits(entry, setup) && entry.remembered.values == values;
    });
  });
}

}  // namespace headroom::plan
