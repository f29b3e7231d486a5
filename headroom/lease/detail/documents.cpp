#include "headroom/lease/detail/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::lease::detail {
namespace {

long long unix_ms(WallTime when) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
}

// Limited to the range of the clock.
WallTime from_unix_ms(long long ms) {
  constexpr long long kYear2200 = 7'258'118'400'000;
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::milliseconds(std::clamp(ms, 0LL, kYear2200))));
}

// Another program may write any number: refuse amounts that no card can have.
Bytes amount(const Json& value) {
  const auto count = value.get<std::int64_t>();
  if (count < 0 || count > kMostReserved.count) throw InputError("lease", "no amount of memory");
  return Bytes{count};
}

// Text for people: cut, so that a command of a thousand files does not exceed the size that is
// read, and without control characters for another user's terminal.
std::string words(const std::string& text) {
  constexpr std::size_t kMost = 4096;
  return without_controls(std::string(beginning(text, kMost)));
}

Json common_of(const Entry& entry) {
  return {{"schema", 1},
          {"id", entry.id},
          {"ticket", entry.ticket},
          {"pid", entry.owner.pid},
          {"start_ticks", entry.owner.start_ticks},
          {"user", words(entry.user)},
          {"command", words(entry.command)},
          {"since_unix_ms", unix_ms(entry.since)},
          {"pid_namespace", entry.pid_namespace}};
}

void read_common(const Json& json, Entry& entry) {
  if (json.at("schema").get<int>() != 1) throw InputError("lease", "another schema");
  entry.ticket = json.at("ticket").get<long long>();
  entry.owner = {json.at("pid").get<pid_t>(), json.at("start_ticks").get<long long>()};
  // Without it the process number is not valid here.
  entry.pid_namespace = json.value("pid_namespace", std::uint64_t{0});
  entry.user = words(json.at("user").get<std::string>());
  entry.command = words(json.at("command").get<std::string>());
  entry.since = from_unix_ms(json.at("since_unix_ms").get<long long>());
  if (entry.ticket < 0 || kMostTicket < entry.ticket) throw InputError("lease", "no ticket");
}

// The result of `read`; std::nullopt if the text is not such a document.
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

// Drivers name cards by UUIDs; any other name is made one word.
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
  if (!ticket || !at || *ticket < 0 || *ticket > kMostTicket) return {};
  Grant grant{.ticket = *ticket, .at_ns = *at, .id = std::string(fields[2]), .shares = {}};
  for (std::size_t i = 3; i + 1 < fields.size(); i += 2) {
    const auto bytes = to_integer(fields[i + 1]);
    if (!bytes || *bytes < 0 || *bytes > kMostReserved.count) return {};
    grant.shares.push_back({gpu::Uuid::from_driver(std::string(fields[i])), Bytes{*bytes}});
  }
  return grant;
}

}  // namespace

std::string text_of(const Claim& claim) {
  Json json = common_of(claim);
  json["shares"] = Json::array();
  for (const Share& share : claim.shares)
    json["shares"].push_back(
        {{"uuid", to_string(share.card)}, {"reserved_bytes", share.reserved.count}});
  return to_line(json) + "\n";
}

std::string text_of(const Waiter& waiter) {
  Json json = common_of(waiter);
  json["need_bytes"] = waiter.wish.need.count;
  json["count"] = waiter.wish.count;
  json["cards"] = Json::array();
  for (const gpu::Uuid& card : waiter.wish.cards) json["cards"].push_back(to_string(card));
  json["why"] = words(waiter.why);
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
    waiter.why = words(json.at("why").get<std::string>());
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
