#include "headroom/lease/detail/documents.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::lease::detail {
namespace {

long long unix_ms(WallTime when) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
}

WallTime from_unix_ms(long long ms) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::milliseconds(ms)));
}

// A program of another kind may write what it likes: no amount is beyond what a card can have.
Bytes amount(const Json& value) {
  constexpr std::int64_t kMost = 1LL << 50;
  const auto count = value.get<std::int64_t>();
  if (count < 0 || count > kMost) throw InputError("[lease] no amount of memory");
  return Bytes{count};
}

template <typename T>
void write_common(Json& json, const T& entry) {
  json = {{"schema", 1},
          {"id", entry.id},
          {"ticket", entry.ticket},
          {"pid", entry.owner.pid},
          {"start_ticks", entry.owner.start_ticks},
          {"user", entry.user},
          {"command", entry.command},
          {"since_unix_ms", unix_ms(entry.since)}};
}

template <typename T>
void read_common(const Json& json, T& entry) {
  if (json.at("schema").get<int>() != 1) throw InputError("[lease] another schema");
  entry.id = json.at("id").get<std::string>();
  entry.ticket = json.at("ticket").get<long long>();
  entry.owner = {json.at("pid").get<pid_t>(), json.at("start_ticks").get<long long>()};
  entry.user = json.at("user").get<std::string>();
  entry.command = json.at("command").get<std::string>();
  entry.since = from_unix_ms(json.at("since_unix_ms").get<long long>());
  // A counter beyond this would run over.
  constexpr long long kMost = 1LL << 60;
  if (entry.ticket < 0 || kMost < entry.ticket) throw InputError("[lease] no ticket");
}

// What `read` makes of the text; nothing if it is no such document.
template <typename T, typename Read>
std::optional<T> read_document(std::string_view text, Read&& read) {
  try {
    const Json json = parse_json(text, "a lease");
    T entry;
    read_common(json, entry);
    read(json, entry);
    return entry;
  } catch (const Error&) {
    return {};
  } catch (const Json::exception&) {
    return {};
  }
}

// The names that drivers give cards are UUIDs; should one be anything else, it stays one word.
std::string word(const gpu::Uuid& card) {
  std::string text = to_string(card);
  for (char& c : text)
    if (c == '\t' || c == '\n') c = '_';
  return text;
}

std::optional<Grant> read_grant(std::string_view line) {
  const auto fields = split(line, '\t');
  if (fields.size() < 3 || fields.size() % 2 == 0) return {};
  const auto ticket = to_integer(fields[0]), at = to_integer(fields[1]);
  if (!ticket || !at || *ticket < 0 || *ticket > (1LL << 60)) return {};
  Grant grant{.ticket = *ticket, .at_ns = *at, .id = std::string(fields[2]), .shares = {}};
  for (std::size_t i = 3; i + 1 < fields.size(); i += 2) {
    const auto bytes = to_integer(fields[i + 1]);
    if (!bytes || *bytes < 0 || *bytes > (1LL << 50)) return {};
    grant.shares.push_back({gpu::Uuid::from_driver(std::string(fields[i])), Bytes{*bytes}});
  }
  return grant;
}

}  // namespace

std::string text_of(const Claim& claim) {
  Json json;
  write_common(json, claim);
  json["pid_namespace"] = claim.pid_namespace;
  json["shares"] = Json::array();
  for (const Share& share : claim.shares)
    json["shares"].push_back(
        {{"uuid", to_string(share.card)}, {"reserved_bytes", share.reserved.count}});
  return to_line(json) + "\n";
}

std::string text_of(const Waiter& waiter) {
  Json json;
  write_common(json, waiter);
  json["need_bytes"] = waiter.wish.need.count;
  json["count"] = waiter.wish.count;
  json["cards"] = Json::array();
  for (const gpu::Uuid& card : waiter.wish.cards) json["cards"].push_back(to_string(card));
  json["why"] = waiter.why;
  return to_line(json) + "\n";
}

std::string text_of(const Grant& grant) {
  std::string line =
      std::to_string(grant.ticket) + "\t" + std::to_string(grant.at_ns) + "\t" + grant.id;
  for (const Share& share : grant.shares)
    line += "\t" + word(share.card) + "\t" + std::to_string(share.reserved.count);
  return line + "\n";
}

std::optional<Claim> read_claim(std::string_view text) {
  return read_document<Claim>(text, [](const Json& json, Claim& claim) {
    claim.pid_namespace = json.at("pid_namespace").get<std::uint64_t>();
    for (const Json& share : json.at("shares"))
      claim.shares.push_back({gpu::Uuid::from_driver(share.at("uuid").get<std::string>()),
                              amount(share.at("reserved_bytes"))});
  });
}

std::optional<Waiter> read_waiter(std::string_view text) {
  return read_document<Waiter>(text, [](const Json& json, Waiter& waiter) {
    waiter.wish.need = amount(json.at("need_bytes"));
    waiter.wish.count = json.at("count").get<int>();
    for (const Json& card : json.at("cards"))
      waiter.wish.cards.push_back(gpu::Uuid::from_driver(card.get<std::string>()));
    waiter.why = json.at("why").get<std::string>();
  });
}

std::vector<Grant> read_grants(std::string_view text) {
  std::vector<Grant> grants;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (auto grant = read_grant(text.substr(0, end))) grants.push_back(*std::move(grant));
    text.remove_prefix(end + 1);
  }
  return grants;
}

}  // namespace headroom::lease::detail
