// What the administrator of a machine allows each user: limits on leases in a file that root owns
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

// Empty: no limit.
struct Limit {
  std::optional<Bytes> reserved;  // by all of a user's leases together
  std::optional<int> cards;       // on which they are
};

class Site {
 public:
  // /etc/headroom/site.json. Where there is none HEADROOM_SITE names another; where there is one
  // that variable changes nothing. A file that cannot be used (no JSON, unknown keys, at the usual
  // place one that others than root may write) sets no limits, and `trouble` says why.
  [[nodiscard]] static Site read();
  [[nodiscard]] static Site read(const std::filesystem::path& usual,
                                 const std::optional<std::string>& other);

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }  // empty: none
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::vector<std::string>& unknown_users() const { return unknown_users_; }

  // The user's own, else everybody's; root has one only under its own name. A name that no user of
  // the machine has sets no limit.
  [[nodiscard]] Limit limit_of(uid_t uid) const;

  // Why a user may not have this beside the leases that are his already: waiting does not help,
  // ending one of them does. Nothing if he may. `cards` are empty as long as none are chosen.
  [[nodiscard]] std::optional<std::string> over_limit(const Contents& now, uid_t uid, Bytes asked,
                                                      const std::set<gpu::Uuid>& cards) const;

  // What the user may still reserve; nothing: as much as there is.
  [[nodiscard]] std::optional<Bytes> left(const Contents& now, uid_t uid) const;

 private:
  void take(const std::string& text);

  std::filesystem::path file_;
  std::string trouble_;
  std::vector<std::string> unknown_users_;  // misspelt, or of another container
  Limit everybody_;
  std::map<uid_t, Limit> users_;  // asked for in turns, where no name is looked up any more
};

}  // namespace headroom::lease
