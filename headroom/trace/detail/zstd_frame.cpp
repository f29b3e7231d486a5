#include "headroom/trace/detail/zstd_frame.h"

#include <new>

#include "headroom/base/error.h"

namespace headroom::trace::detail {
namespace {

// With valid parameters and enough memory, zstd has no reason to fail.
std::size_t checked(std::size_t result) {
  if (ZSTD_isError(result) != 0)
    throw InternalError(expectation("zstd", "it to work", ZSTD_getErrorName(result)));
  return result;
}

}  // namespace

Compressor::Compressor(int level) {
  if (!context_) throw std::bad_alloc();
  checked(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level));
  checked(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1));
}

void Compressor::append_frame(std::string& to, std::string_view raw) {
  const std::size_t before = to.size();
  const std::size_t room = ZSTD_compressBound(raw.size());
  to.resize(before + room);
  to.resize(before + checked(ZSTD_compress2(context_.get(), to.data() + before, room, raw.data(),
                                            raw.size())));
}

Decompressor::Decompressor() {
  if (!context_) throw std::bad_alloc();
}

bool Decompressor::decompress(std::string_view frame, std::size_t raw_bytes, std::string& raw) {
  // Without this check zstd would accept several concatenated frames.
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) return false;
  raw.resize(raw_bytes);
  return ZSTD_decompressDCtx(context_.get(), raw.data(), raw_bytes, frame.data(), frame.size()) ==
         raw_bytes;
}

}  // namespace headroom::trace::detail
