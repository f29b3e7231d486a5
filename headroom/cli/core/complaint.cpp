#include "headroom/cli/core/complaint.h"

#include <filesystem>

#include "headroom/base/error.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {
namespace {

// LibTorch's exceptions append a stack trace.
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
    return complain(error.sentence(), kUsage);
  } catch (const InputError& error) {
    return complain(error.sentence(), kBadInput);
  } catch (const UnavailableError& error) {
    return complain(error.sentence(), kUnavailable);
  } catch (const WriteError& error) {
    return complain(error.sentence(), kCannotWrite);
  } catch (const BusyError& error) {
    return complain(error.sentence(), kBusy);
  } catch (const OutOfMemoryError& error) {
    return complain(error.sentence(), kOutOfMemory);
  } catch (const std::filesystem::filesystem_error& error) {  // the system's error about a path
    return complain(error.path1().string() + ": " + error.code().message(), kBadInput);
  } catch (const std::exception& error) {
    return complain("this is a bug in Headroom: " + first_line(error.what()), kInternal);
  }
}

}  // namespace headroom::cli
