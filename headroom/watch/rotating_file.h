// A log file that is kept small: at `limit` bytes it becomes FILE.1, FILE.1 becomes FILE.2, and the
// oldest goes. Lines are never cut in two: a file may end a little before its limit.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::watch {

struct RotationOptions {
  Bytes limit{0};  // 0: never rotated
  int keep = 3;    // FILE.1 ... FILE.keep
};

class RotatingFile {
 public:
  // Appends to what is there. `header` begins every new file; a file that begins otherwise is
  // somebody's other log and is refused with InputError. Throws WriteError.
  RotatingFile(std::filesystem::path path, std::string header, RotationOptions options = {});
  ~RotatingFile();
  RotatingFile(const RotatingFile&) = delete;
  RotatingFile& operator=(const RotatingFile&) = delete;

  // Writes whole lines, all of them into one file, and hands them to the system. Throws WriteError.
  void append(std::string_view lines);

 private:
  void open();
  void rotate();
  void refuse_other_content() const;
  void take_back_half_of(Bytes lines);

  std::filesystem::path path_;
  std::string header_;
  RotationOptions options_;
  int fd_ = -1;
  bool is_file_ = false;
  Bytes size_{0};
};

}  // namespace headroom::watch
