#include "headroom/oom/forensics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"

namespace headroom::oom {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kMostHolders = 3, kMostMoments = 4, kBar = 40;
// The reason ends with advice to the reader, so it gets more lines.
constexpr std::size_t kReasonLines = 8;

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

// Cuts only between UTF-8 characters; control characters (a command line may hold any) become dots.
std::string fitted(std::string_view text, std::size_t width) {
  std::string line;
  for (const char c : text.substr(0, width + 1))
    line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '.' : c;
  if (line.size() <= width) return line;
  std::size_t end = width - 3;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  return line.substr(0, end) + "...";
}

std::string line(std::string_view text) {
  return fitted(text, kWidth) + "\n";
}

// Wraps at blanks, and cuts after `most` lines: evidence may be a page long.
std::string sentence(std::string_view text, std::string_view first = "", std::size_t most = 3) {
  std::string lines;
  std::string whole = wrapped(fitted(text, most * kWidth - 20), first, "    ", kWidth);
  whole.pop_back();
  for (const std::string_view part : split(whole, '\n')) lines += line(part);
  return lines;
}

std::string where(const Judgement& judgement) {
  if (judgement.verdict == Verdict::host_oom) return "of the host's memory";
  if (!judgement.device) return "of the card's memory";
  return "of memory on device " + std::to_string(*judgement.device);
}

std::string headline(const Judgement& judgement) {
  const bool known =
      judgement.verdict == Verdict::gpu_oom || judgement.verdict == Verdict::host_oom;
  const std::string percent =
      std::to_string(static_cast<int>(std::lround(judgement.confidence * 100))) + " % sure";
  if (known) return line("Out " + where(judgement) + " (" + judgement.kind + ", " + percent + ")");
  return line(std::string("Not proved to be an out-of-memory: ") + to_string(judgement.verdict));
}

std::string asked_sentence(const Forensics& forensics) {
  const Judgement& judgement = forensics.judgement;
  std::string text = judgement.asked ? "Requested " + to_string(*judgement.asked)
                                     : "The size of the request is unknown";
  if (judgement.free) text += "; " + to_string(*judgement.free);
  if (judgement.free && judgement.total) text += " of " + to_string(*judgement.total);
  if (judgement.free) text += " was free";
  if (forensics.limit) text += "; the job may use " + to_string(*forensics.limit);
  return sentence(text + ".");
}

std::string holder_line(const HolderThen& holder) {
  std::string text = "  " + right(holder.used ? to_string(*holder.used) : "?", 10) + "  ";
  if (holder.of_the_job) text += "this job: ";
  if (holder.pid) text += "PID " + std::to_string(*holder.pid) + " ";
  if (!holder.of_the_job && !holder.user.empty()) text += "of " + holder.user + " ";
  return line(text + holder.command);
}

Bytes named_bytes(const CardSample& card) {
  Bytes sum;
  for (const HolderThen& holder : card.holders) sum += holder.used.value_or(Bytes{});
  return sum;
}

std::string card_lines(const CardSample& card, std::size_t of_cards) {
  const std::string which =
      of_cards > 1 ? ", the fullest of " + counted(static_cast<long long>(of_cards), "card") : "";
  std::string text = line("Card " + std::to_string(card.index) + " (" + card.name + ", " +
                          to_string(card.memory.total) + ")" + which + ":");
  std::vector<HolderThen> holders = card.holders;
  std::stable_sort(holders.begin(), holders.end(), [](const HolderThen& a, const HolderThen& b) {
    return a.used.value_or(Bytes{}) > b.used.value_or(Bytes{});
  });
  for (std::size_t i = 0; i < std::min(holders.size(), kMostHolders); ++i)
    text += holder_line(holders[i]);
  if (holders.size() > kMostHolders)
    text +=
        line("  " + right("", 10) + "  and " +
             counted(static_cast<long long>(holders.size() - kMostHolders), "process") + " more");
  const Bytes rest = card.memory.used - named_bytes(card);
  if (rest.mib() >= 1) text += line("  " + right(to_string(rest), 10) + "  no process shown");
  return text + line("  " + right(to_string(card.memory.free), 10) + "  free");
}

// Only the fullest card is described: the others say little.
const CardSample* fullest(const std::vector<CardSample>& cards) {
  const auto found = std::min_element(
      cards.begin(), cards.end(),
      [](const CardSample& a, const CardSample& b) { return a.memory.free < b.memory.free; });
  return found == cards.end() ? nullptr : &*found;
}

// Moments spread evenly over the time, always with the last one.
std::vector<MemoryThen> moments(const std::vector<MemoryThen>& samples) {
  if (samples.size() <= kMostMoments) return samples;
  std::vector<MemoryThen> chosen;
  for (std::size_t i = 0; i < kMostMoments; ++i)
    chosen.push_back(samples[i * (samples.size() - 1) / (kMostMoments - 1)]);
  return chosen;
}

std::string bar(const MemoryThen& moment, Bytes most) {
  if (most.count <= 0) return {};
  const auto share = [&](Bytes part) {
    const double cells = ratio(part, most) * static_cast<double>(kBar);
    return static_cast<std::size_t>(std::clamp(cells, 0.0, static_cast<double>(kBar)));
  };
  const std::size_t used = share(moment.used);
  const std::size_t job = std::min(share(moment.job_used.value_or(Bytes{})), used);
  return std::string(job, '#') + std::string(used - job, '+');
}

std::string seconds_text(Seconds seconds) {
  const long whole = std::lround(seconds.count());
  return whole == 0 ? "at the end" : std::to_string(whole) + " s";
}

std::string timeline(const std::vector<MemoryThen>& samples, Bytes most) {
  // A short run may have no sample that shows anything.
  const bool seen = std::any_of(samples.begin(), samples.end(),
                                [](const MemoryThen& moment) { return moment.used.count > 0; });
  if (!seen) return {};
  std::string text = line("Memory in use, by time before the end (# this job, + others):");
  for (const MemoryThen& sample : samples) most = std::max(most, sample.used);
  for (const MemoryThen& moment : moments(samples))
    text += line("  " + right(seconds_text(moment.before_end), 10) + "  " +
                 right(to_string(moment.used), 10) + "  " + bar(moment, most));
  return text;
}

// "batch 16 x 4 used 9.00 GiB".
std::string tried_text(const TryThen& tried) {
  std::vector<std::string> parts;
  if (tried.batch)
    parts.push_back("batch " + std::to_string(*tried.batch) +
                    (tried.accumulation ? " x " + std::to_string(*tried.accumulation) : ""));
  if (tried.peak) parts.push_back("used " + to_string(*tried.peak));
  return join(parts, " ");
}

std::string last_try_text(const TryThen& tried) {
  const std::string text = tried_text(tried);
  const std::string end = tried.out_of_memory ? "did not fit" : "fitted";
  return text + (text.empty() ? "" : tried.peak ? " and " : " ") + end;
}

// The try with the largest batch among those that fitted; std::nullopt if none did.
std::optional<TryThen> largest_fit(const std::vector<TryThen>& tries) {
  std::optional<TryThen> largest;
  for (const TryThen& tried : tries)
    if (!tried.out_of_memory && (!largest || tried.batch > largest->batch)) largest = tried;
  return largest;
}

std::string tries_lines(const std::vector<TryThen>& tries) {
  if (tries.empty()) return {};
  const auto fit = largest_fit(tries);
  const std::string text = line("This try: " + last_try_text(tries.back()) + "; " +
                                counted(static_cast<long long>(tries.size()), "try") + " so far.");
  if (!tries.back().batch) return text;
  return text +
         line(fit ? "Largest that fitted: " + tried_text(*fit) + "." : "None has fitted so far.");
}

std::string changes_line(const Forensics& forensics) {
  std::vector<std::string> changes;
  for (const Change& change : forensics.changes)
    changes.push_back(change.name + " " + std::to_string(change.from) + " -> " +
                      std::to_string(change.to));
  if (!changes.empty()) return sentence("To change: " + join(changes, ", "));
  if (!forensics.why_no_change.empty())
    return sentence("Nothing to change: " + forensics.why_no_change, "", kReasonLines);
  return line("To change: a smaller batch, or a card with more free memory.");
}

Json document(const CardSample& card) {
  Json json{{"index", card.index},
            {"uuid", card.uuid},
            {"name", card.name},
            {"total_bytes", card.memory.total.count},
            {"used_bytes", card.memory.used.count},
            {"free_bytes", card.memory.free.count},
            {"holders", Json::array()}};
  for (const HolderThen& holder : card.holders)
    json["holders"].push_back({{"pid", or_null(holder.pid)},
                               {"user", holder.user},
                               {"command", holder.command},
                               {"used_bytes", or_null(holder.used)},
                               {"of_the_job", holder.of_the_job}});
  return json;
}

Json document(const TryThen& tried) {
  return {{"batch", or_null(tried.batch)},
          {"accumulation", or_null(tried.accumulation)},
          {"out_of_memory", tried.out_of_memory},
          {"peak_bytes", or_null(tried.peak)}};
}

}  // namespace

CardSample card_sample(const gpu::Card& card, const std::vector<pid_t>& job) {
  CardSample then{.index = card.index,
                  .uuid = to_string(card.uuid),
                  .name = card.name,
                  .memory = card.memory.value_or(gpu::CardMemory{}),
                  .holders = {}};
  for (const gpu::GpuProcess& process : card.processes.value_or(std::vector<gpu::GpuProcess>{})) {
    const bool ours = process.pid && std::find(job.begin(), job.end(), *process.pid) != job.end();
    then.holders.push_back({.pid = process.pid,
                            .user = process.user.value_or(""),
                            .command = process.command.value_or(""),
                            .used = process.used,
                            .of_the_job = ours});
  }
  return then;
}

std::string describe(const Forensics& forensics) {
  std::string text = headline(forensics.judgement);
  if (!forensics.judgement.evidence.empty()) text += sentence(forensics.judgement.evidence, "  ");
  text += asked_sentence(forensics);
  const CardSample* card = fullest(forensics.cards);
  if (card != nullptr) text += card_lines(*card, forensics.cards.size());
  const Bytes most = card != nullptr ? card->memory.total : forensics.limit.value_or(Bytes{});
  text += timeline(forensics.samples, most);
  text += tries_lines(forensics.tries);
  return text + changes_line(forensics);
}

Json document(const Judgement& judgement) {
  return {{"verdict", to_string(judgement.verdict)}, {"kind", judgement.kind},
          {"confidence", judgement.confidence},      {"evidence", judgement.evidence},
          {"asked_bytes", or_null(judgement.asked)}, {"total_bytes", or_null(judgement.total)},
          {"free_bytes", or_null(judgement.free)},   {"device", or_null(judgement.device)}};
}

Json document(const Forensics& forensics) {
  Json json{{"judgement", document(forensics.judgement)},
            {"cards", Json::array()},
            {"samples", Json::array()},
            {"limit_bytes", or_null(forensics.limit)},
            {"tries", Json::array()},
            {"largest_fit", Json()},
            {"changes", Json::array()},
            {"why_no_change", forensics.why_no_change}};
  for (const CardSample& card : forensics.cards) json["cards"].push_back(document(card));
  for (const MemoryThen& moment : forensics.samples)
    json["samples"].push_back({{"before_end_s", moment.before_end.count()},
                               {"used_bytes", moment.used.count},
                               {"job_used_bytes", or_null(moment.job_used)}});
  for (const TryThen& tried : forensics.tries) json["tries"].push_back(document(tried));
  if (const auto fit = largest_fit(forensics.tries)) json["largest_fit"] = document(*fit);
  for (const Change& change : forensics.changes)
    json["changes"].push_back({{"name", change.name}, {"from", change.from}, {"to", change.to}});
  return json;
}

}  // namespace headroom::oom
