#include "headroom/lease/site.h"

#include <fmt/format.h>

#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/amount.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"

namespace headroom::lease {
namespace {

constexpr const char* kUsual = "/etc/headroom/site.json";

[[noreturn]] void refuse(const std::string& expected, const Json& received) {
  throw InputError(fmt::format("expected {}, received {}", expected, received.dump()));
}

void check_keys(const Json& object, const std::set<std::string>& known, const std::string& where) {
  if (!object.is_object()) refuse("an object at " + where, object);
  for (const auto& [key, value] : object.items())
    if (!known.contains(key))
      refuse(fmt::format("the keys {} at {}", join({known.begin(), known.end()}, ", "), where),
             key);
}

Limit limit_from(const Json& json, const std::string& where) {
  check_keys(json, {"cards", "reserved"}, where);
  Limit limit;
  if (json.contains("reserved")) {
    const Json& size = json["reserved"];
    if (!size.is_string()) refuse("a size such as \"40GiB\" for reserved at " + where, size);
    limit.reserved = parse_amount(size.get<std::string>(), where);
  }
  if (json.contains("cards")) {
    const Json& cards = json["cards"];
    if (!cards.is_number_integer() || cards < 0) refuse("a number for cards at " + where, cards);
    limit.cards = static_cast<int>(std::min<std::int64_t>(cards.get<std::int64_t>(), 1 << 20));
  }
  return limit;
}

// At the usual place only root may be able to write it, so that users can rely on it.
std::string why_not_roots(const std::filesystem::path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return "it cannot be read";
  if (facts.st_uid != 0)
    return fmt::format("it belongs to {}, not to root", user_name(facts.st_uid));
  if ((facts.st_mode & 022) != 0) return "users other than root may write it; try chmod 644";
  return {};
}

// Accepts a number, too, for users whose names a container does not know.
std::optional<uid_t> uid_of(const std::string& name) {
  if (const passwd* user = ::getpwnam(name.c_str())) return user->pw_uid;
  const auto number = to_integer(name);
  return number && *number >= 0 ? std::optional(static_cast<uid_t>(*number)) : std::nullopt;
}

struct Held {
  Bytes reserved{0};
  std::set<gpu::Uuid> cards;
  long long leases = 0;
};

Held held_by(const Contents& now, uid_t uid) {
  Held held;
  for (const Claim& lease : now.leases) {
    if (lease.uid != uid) continue;
    ++held.leases;
    for (const Share& share : lease.shares) {
      held.reserved = std::min(held.reserved + share.reserved, kMostReserved);
      held.cards.insert(share.card);
    }
  }
  return held;
}

}  // namespace

Site Site::read() {
  return read(kUsual, environment("HEADROOM_SITE"));
}

Site Site::read(const std::filesystem::path& usual, const std::optional<std::string>& other) {
  Site site;
  std::error_code unknown;
  const bool is_usual = std::filesystem::exists(usual, unknown) || unknown;
  if (is_usual)
    site.file_ = usual;
  else if (other && !other->empty())
    site.file_ = *other;
  else
    return site;
  if (is_usual) site.trouble_ = why_not_roots(usual);
  if (!site.trouble_.empty()) return site;
  try {
    site.take(read_input(site.file_));
  } catch (const Error& error) {
    site = Site{};
    site.file_ = is_usual ? usual : std::filesystem::path(*other);
    site.trouble_ = error.sentence();
  }
  return site;
}

void Site::take(const std::string& text) {
  const Json json = parse_json(text, file_.string());
  check_keys(json, {"limits", "schema"}, "the top");
  if (const Json schema = json.value("schema", Json(1)); schema != 1)
    refuse("1 for schema", schema);
  const Json limits = json.value("limits", Json::object());
  check_keys(limits, {"everybody", "users"}, "limits");
  if (limits.contains("everybody"))
    everybody_ = limit_from(limits["everybody"], "limits.everybody");
  const Json users = limits.value("users", Json::object());
  if (!users.is_object()) refuse("an object at limits.users", users);
  for (const auto& [name, json_limit] : users.items()) {
    const Limit limit = limit_from(json_limit, "limits.users." + name);
    if (const auto uid = uid_of(name))
      users_[*uid] = limit;
    else
      unknown_users_.push_back(name);
  }
}

Limit Site::limit_of(uid_t uid) const {
  const auto own = users_.find(uid);
  if (own != users_.end()) return own->second;
  return uid == 0 ? Limit{} : everybody_;
}

std::optional<Bytes> Site::left(const Contents& now, uid_t uid) const {
  const auto most = limit_of(uid).reserved;
  if (!most) return {};
  return std::max(Bytes{0}, *most - held_by(now, uid).reserved);
}

std::optional<std::string> Site::over_limit(const Contents& now, uid_t uid, Bytes asked,
                                            const std::set<gpu::Uuid>& cards) const {
  const Limit limit = limit_of(uid);
  Held held = held_by(now, uid);
  const std::string have =
      held.leases == 0 ? ""
                       : fmt::format("; {} are reserved by {} (headroom lease list)",
                                     to_string(held.reserved), counted(held.leases, "lease"));
  const std::string who = fmt::format("of {} in {}", user_name(uid), file_.string());
  held.cards.insert(cards.begin(), cards.end());
  if (limit.reserved && held.reserved + asked > *limit.reserved)
    return fmt::format("asked for {}, and the limit {} is {}{}", to_string(asked), who,
                       to_string(*limit.reserved), have);
  if (limit.cards && !cards.empty() && held.cards.size() > static_cast<std::size_t>(*limit.cards))
    return fmt::format("asked for {}, and the limit {} is {} at a time{}",
                       counted(static_cast<long long>(cards.size()), "card"), who,
                       counted(*limit.cards, "card"), have);
  return {};
}

}  // namespace headroom::lease
