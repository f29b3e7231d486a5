// Compresses and decompresses one zstd frame with a checksum, in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace headroom::trace::detail {

class Compressor {
 public:
  explicit Compressor(int level);
  void append_frame(std::string& to, std::string_view raw);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
};

class Decompressor {
 public:
  Decompressor();
  // False: `frame` is not one undamaged frame of exactly `raw_bytes`. Allocates no more than that,
  // whatever size the frame claims.
  [[nodiscard]] bool decompress(std::string_view frame, std::size_t raw_bytes, std::string& raw);

 private:
  struct Free {
    void operator()(ZSTD_DCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
};

}  // namespace headroom::trace::detail
