// Compresses and decompresses one zstd frame with a checksum, in memory.
#pragma once

#include <zstd.h>

#include <memory>
#include <string>
#include <string_view>

namespace headroom::trace::detail {

class Compressor {
 public:
  explicit Compressor(int level);
  void append_frame(std::string& to, std::string_view raw);

 private:
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context_{ZSTD_createCCtx(), &ZSTD_freeCCtx};
};

class Decompressor {
 public:
  Decompressor();
  // False if `frame` is not one undamaged frame of exactly `raw_bytes`. Allocates no more than
  // that, whatever size the frame claims.
  [[nodiscard]] bool decompress(std::string_view frame, std::size_t raw_bytes, std::string& raw);

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_{ZSTD_createDCtx(), &ZSTD_freeDCtx};
};

}  // namespace headroom::trace::detail
