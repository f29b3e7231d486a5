#include "headroom/cli/core/complaint.h"

#include "headroom/base/error.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {
namespace {

// "[parse_bytes] expected ..." names a function, which means nothing to who typed a command; of
// "[--need] expected ..." the option stays.
std::string without_function(const std::string& what) {
  const std::size_t end = what.starts_with("[") ? what.find("] ") : std::string::npos;
  if (end == std::string::npos) return what;
  const bool is_option = what.starts_with("[--");
  return (is_option ? what.substr(1, end - 1) + ": " : "") + what.substr(end + 2);
}

// What LibTorch throws goes on with a list of functions.
std::string first_line(const std::string& what) {
  return what.substr(0, what.find('\n'));
}

}  // namespace

ExitCode complain(const std::string& what, ExitCode code) {
  print_error("headroom: " + what + "\n");
  return code;
}

ExitCode complaining(const std::function<ExitCode()>& command) {
  try {
    return command();
  } catch (const UsageError& error) {
    return complain(without_function(error.what()), kUsage);
  } catch (const InputError& error) {
    return complain(without_function(error.what()), kBadInput);
  } catch (const UnavailableError& error) {
    return complain(without_function(error.what()), kUnavailable);
  } catch (const WriteError& error) {
    return complain(without_function(error.what()), kCannotWrite);
  } catch (const BusyError& error) {
    return complain(without_function(error.what()), kBusy);
  } catch (const OutOfMemoryError& error) {
    return complain(without_function(error.what()), kOutOfMemory);
  } catch (const std::exception& error) {
    return complain("this is a bug in Headroom: " + first_line(error.what()), kInternal);
  }
}

}  // namespace headroom::cli
