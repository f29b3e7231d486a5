// A log file of bounded size: at `limit` bytes FILE becomes FILE.1, FILE.1 becomes FILE.2, and the
// oldest is deleted. Rotation never splits a line, so a file may end a little below its limit.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::watch {

struct RotationOptions {
  Bytes limit{0};  // 0: never rotate
  int keep = 3;    // FILE.1 ... FILE.keep
};

class RotatingFile {
 public:
  // Appends to an existing file. Every new file begins with `header`; an existing file that begins
  // differently is another program's log and is refused with InputError. Throws WriteError.
  RotatingFile(std::filesystem::path path, std::string header, RotationOptions options = {});
  ~RotatingFile();
  RotatingFile(const RotatingFile&) = delete;
  RotatingFile& operator=(const RotatingFile&) = delete;

  // Writes whole lines, all into one file, and hands them to the operating system. Throws
  // WriteError.
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
