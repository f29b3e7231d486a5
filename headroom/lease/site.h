// The administrator's limits on each user's leases, in a file that root owns
// (docs/formats/site.md).
//
//   const Site site = Site::read();
//   if (auto why = site.over_limit(contents, uid, 10_GiB, {card})) say(*why);
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/lease/directory.h"

namespace headroom::lease {

// std::nullopt means no limit.
struct Limit {
  std::optional<Bytes> reserved;  // in all leases of a user together
  std::optional<int> cards;       // cards with a lease of the user
};

class Site {
 public:
  // Reads /etc/headroom/site.json, or if it does not exist the file that HEADROOM_SITE names. An
  // invalid file (no JSON, unknown keys, or at the usual place writable for others than root) sets
  // no limits, and `trouble` has the reason.
  [[nodiscard]] static Site read();
  [[nodiscard]] static Site read(const std::filesystem::path& usual,
                                 const std::optional<std::string>& other);

  // An empty path if there is no file.
  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::vector<std::string>& unknown_users() const { return unknown_users_; }

  // The user's own limit, else the limit `everybody`. Root has only its own. A name that no user
  // of the machine has sets no limit.
  [[nodiscard]] Limit limit_of(uid_t uid) const;

  // The reason why the user may not have this in addition to the leases that the user has: only
  // ending one of them helps. std::nullopt if allowed. `cards` is empty until cards are chosen.
  [[nodiscard]] std::optional<std::string> over_limit(const Contents& now, uid_t uid, Bytes asked,
                                                      const std::set<gpu::Uuid>& cards) const;

  // Memory that the user may still reserve; std::nullopt if there is no limit.
  [[nodiscard]] std::optional<Bytes> left(const Contents& now, uid_t uid) const;

 private:
  void take(const std::string& text);

  std::filesystem::path file_;
  std::string trouble_;
  std::vector<std::string> unknown_users_;  // misspelt, or unknown in this container
  Limit everybody_;
  std::map<uid_t, Limit> users_;  // looked up before, so that a turn never waits for a name lookup
};

}  // namespace headroom::lease
