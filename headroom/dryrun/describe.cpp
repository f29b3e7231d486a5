#include "headroom/dryrun/describe.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace headroom::dryrun {
namespace {

constexpr int kBar = 32;

void line(std::ostream& out, std::string_view what, Bytes bytes, Bytes of) {
  if (bytes.count == 0) return;
  const double share = of.count == 0 ? 0 : ratio(bytes, of);
  out << "  " << std::left << std::setw(13) << what << std::right << std::setw(12)
      << to_string(bytes) << "  "
      << std::string(static_cast<std::size_t>(std::lround(share * kBar)), '#') << "\n";
}

void parts(std::ostream& out, const trace::Report& report) {
  for (const trace::NamedPart& named : trace::kParts)
    line(out, named.name, report.at_peak.*named.part, report.peak.allocated);
}

void verdict(std::ostream& out, const trace::Report& report) {
  if (report.fits()) return;
  const allocator::OutOfMemory& refusal = *report.out_of_memory;
  out << "Does not fit: " << to_string(refusal.tried) << " were requested when "
      << to_string(refusal.free) << " of " << to_string(refusal.capacity) << " were free.\n";
}

}  // namespace

std::string describe(const trace::Report& report, const DescribeOptions& options) {
  std::ostringstream out;
  verdict(out, report);
  if (const std::string warning = warning_of(report); !warning.empty()) out << warning << "\n";
  out << "Peak " << to_string(report.peak.allocated) << " allocated, "
      << to_string(report.peak.reserved) << " reserved, in " << to_string(report.peak.phase);
  if (report.peak.step > 0) out << " of step " << report.peak.step;
  out << "\n";
  parts(out, report);
  // The first entry is the whole step.
  const std::size_t modules = std::min(options.modules + 1, report.by_module.size());
  if (modules > 1) out << "Modules that held the most\n";
  for (std::size_t i = 0; i < modules; ++i) {
    const trace::ModulePeak& module = report.by_module[i];
    if (!module.name.empty())
      out << "  " << std::setw(12) << to_string(module.peak) << "  " << module.name << "\n";
  }
  const std::size_t tensors = std::min(options.tensors, report.biggest.size());
  if (tensors > 0) out << "Biggest tensors at the peak\n";
  for (std::size_t i = 0; i < tensors; ++i) {
    const trace::LiveTensor& held = report.biggest[i];
    out << "  " << std::setw(12) << to_string(held.bytes) << "  " << to_string(held.category);
    if (!held.operation.empty()) out << ", " << held.operation;
    if (!held.module.empty()) out << " in " << held.module;
    out << "\n";
  }
  if (!report.assumptions.empty()) {
    std::uint64_t count = 0;
    for (const trace::Assumption& one : report.assumptions) count += one.count;
    out << "Note: sizes depended on unknown values " << count
        << " times; assumed: " << report.assumptions.front().what
        << (report.assumptions.size() > 1 ? ", and more" : "") << ".\n";
  }
  if (const std::uint64_t copied = report.values_read_as_zero - report.decided_by_unknown;
      copied > 0)
    out << "Note: unknown values were copied from the card " << copied
        << " times; they read as zero.\n";
  return out.str();
}

}  // namespace headroom::dryrun
