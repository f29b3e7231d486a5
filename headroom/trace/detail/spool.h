// Bytes that belong later into a file than they come up: kept in a file without a name beside it,
// which is gone with the process.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/base/output_file.h"

namespace headroom::trace::detail {

class Spool {
 public:
  // Throws WriteError, as the others.
  explicit Spool(std::filesystem::path beside);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // What is appended to it is kept after the next call of settle().
  [[nodiscard]] std::string& bytes() { return bytes_; }
  void settle();
  void copy_to(OutputFile& file);

 private:
  void flush();
  [[noreturn]] void fail(int error) const;

  std::filesystem::path beside_;
  int descriptor_ = -1;  // -1: nothing was too much for memory yet
  std::string bytes_;
};

}  // namespace headroom::trace::detail
