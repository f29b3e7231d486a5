// The error family. The type says whose fault it is and what a caller can do about it; the command
// line turns each into one exit code (docs/reference/exit-codes.md).
//
// "It does not fit" is an answer with figures, never an exception. Operators on simulated cards
// throw c10::Error (libtorch/operator_refusal.h). Every text: what was expected, what came, what to
// try.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/base/bytes.h"

namespace headroom {

// What went wrong: where it was noticed - a function, an option, a place in a file - and the words.
struct Complaint {
  std::string where, words;
};
// "[parse_bytes] expected ..."; the words alone if `where` is empty.
[[nodiscard]] std::string to_string(const Complaint& complaint);

// The root: catch this to catch all that functions of Headroom throw on purpose. what() is for a
// programmer, "[parse_bytes] expected ..."; sentence() for a person, who does not know functions:
// "expected ...", and of an option or a place in a file "--need: expected ...".
class Error : public std::runtime_error {
 public:
  explicit Error(Complaint complaint);
  explicit Error(const std::string& words) : Error(Complaint{{}, words}) {}
  Error(const std::string& where, const std::string& words) : Error(Complaint{where, words}) {}

  [[nodiscard]] const Complaint& complaint() const { return complaint_; }
  [[nodiscard]] std::string sentence() const;

 private:
  Complaint complaint_;
};

// The caller asked for something that does not exist or cannot be read: a bad size, option, name.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A file (or other input) does not hold what it should.
class InputError : public Error {
 public:
  using Error::Error;
};

// The machine lacks what is needed: no driver, no GPU, no LibTorch.
class UnavailableError : public Error {
 public:
  using Error::Error;
};

// Something cannot be written: full disk, missing folder, no permission.
class WriteError : public Error {
 public:
  using Error::Error;
};

// What is needed exists but is taken, or could not be looked at in time: try later.
class BusyError : public Error {
 public:
  using Error::Error;
};

// An assumption of ours is broken: a bug in Headroom, never the user's fault.
class InternalError : public Error {
 public:
  using Error::Error;
};

// Memory ran out, known for sure. Carries what was asked for.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(Complaint complaint, Bytes asked_bytes)
      : Error(std::move(complaint)), asked(asked_bytes) {}
  Bytes asked;
};

// "[parse_bytes] expected a size such as 10GiB, received '10 apples'; try 10GiB".
// `function` is where it was noticed; leave `to_try` empty when there is nothing useful to say.
[[nodiscard]] Complaint expectation(std::string_view function, std::string_view expected,
                                      std::string_view received, std::string_view to_try = {});

}  // namespace headroom
