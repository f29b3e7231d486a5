// Texts as numbers: a file of tokens, cut into sequences of equal length.
//
//   const data::TokenOptions options{.seq = 512};
//   const auto set = std::make_shared<data::TokenFile>("train.bin", options);
//   set->example(0, 0);   // {tokens [512], labels [512]}, both int64
//
// train.bin holds the tokens, one after the other, as little-endian numbers of 16 or 32 bits.
// Beside it may lie
//   train.bin.json    {"schema":1,"dtype":"uint16","tokens":n,"vocab_size":n,"document_end":id,
//                     "mask_token_id":id};
//                     without it, tokens are uint16
//   train.mask.bin    a byte a token: 0 if a model shall not learn to write it, as in the question
//                     of a question and its answer
// `python -m headroom.tokens` writes all three.
//
// A model learns to write a token from those before it. A label is the token itself, or -100, which
// losses leave out. The models of models/model.h take the label of each token at the token's own
// place, and compare it with what they predict at the place before.
//
// The files are mapped, not read: pages of the file come into memory as they are used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "headroom/data/dataset.h"

namespace headroom::data {

struct TokenOptions {
  std::int64_t seq = 512;  // tokens in an example
  // The label of each token stands at its own place, or (`next`) one place earlier, for losses that
  // compare the same places. In the first case an example's first label is never used; in the
  // second its last label is the first token of the next example, or -100 at the end of the file.
  enum class Labels { own, next } labels = Labels::own;
  bool mask = true;                             // labels as the mask says, if there is one
  std::optional<std::int64_t> vocabulary = {};  // of the model; the .json's may be smaller
  // -100 for the first token of each document, which the document before says nothing about. Needs
  // a `document_end`.
  bool skip_document_starts = false;
};

class TokenFile : public Dataset {
 public:
  // Throws InputError for a missing, empty or truncated file, one shorter than one example, and a
  // .json or .mask.bin that does not fit it.
  TokenFile(const std::filesystem::path& path, const TokenOptions& options);
  ~TokenFile() override;
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // tokens / seq: a rest at the end that fills no example is left out.
  [[nodiscard]] std::int64_t size() const override;
  // Throws InputError for a token that the vocabulary does not have. Nothing is random.
  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t seed) const override;

  [[nodiscard]] std::int64_t tokens() const;  // in the file
  // Throws InputError for a token that the vocabulary does not have: among all tokens of a file of
  // up to 256 MiB, else among this many of them, spread evenly.
  void check() const;
  // The highest among the same tokens.
  [[nodiscard]] std::int64_t highest() const;
  // As the .json says; std::nullopt without it.
  [[nodiscard]] std::optional<std::int64_t> vocabulary() const;
  [[nodiscard]] std::optional<std::int64_t> document_end() const;
  [[nodiscard]] std::optional<std::int64_t> mask_token() const;

 private:
  class Content;
  std::unique_ptr<const Content> content_;
};

// The file of a part of the set in a folder: train.bin, val.bin or test.bin. `folder` may be a
// file, which is the training part. Throws InputError if there is no training part; other parts may
// be absent, which gives nothing.
[[nodiscard]] std::optional<std::filesystem::path> token_file_in(
    const std::filesystem::path& folder, Split split);

}  // namespace headroom::data
