// A file as bytes in memory, without reading it: the system brings in each page when it is used,
// and may drop it again.
#pragma once

#include <filesystem>
#include <string_view>

namespace headroom::data::detail {

class MappedFile {
 public:
  // Throws InputError with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace headroom::data::detail
