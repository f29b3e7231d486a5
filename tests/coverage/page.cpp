#include "page.h"

#include <functional>
#include <map>
#include <sstream>

#include "case.h"
#include "headers.h"
#include "limits.h"

namespace headroom::coverage {
namespace {

// "`CTCLoss`", "`CTCLoss`, with lengths on the card"
std::string title(const Case& one) {
  return "`" + one.covers + "`" + (one.variant.empty() ? "" : ", " + one.variant);
}

auto of(std::string Limits::*limit) {
  return [=](const Case& one) { return one.limits.*limit; };
}

// Cases with the same reason stand together.
template <typename Reason>
std::string table_of(const Reason& reason_of, const char* heading, const char* words) {
  std::map<std::string, std::string> titles;
  for (const Case& one : all_cases()) {
    const std::string reason = std::invoke(reason_of, one);
    if (reason.empty()) continue;
    std::string& together = titles[reason];
    together += (together.empty() ? "" : "; ") + title(one);
  }
  std::ostringstream text;
  text << "\n## " << heading << "\n\n" << words << "\n\n";
  if (titles.empty()) {
    text << "None.\n";
    return text.str();
  }
  text << "| what | why |\n| --- | --- |\n";
  for (const auto& [reason, who] : titles) text << "| " << who << " | " << reason << " |\n";
  return text.str();
}

std::string names(const char* heading, bool of_headers) {
  Names all;
  for (const Case& one : all_cases())
    if ((header_names().count(one.covers) > 0) == of_headers) all.insert(one.covers);
  std::ostringstream text;
  text << "\n## " << heading << "\n\n";
  std::size_t width = 0;
  for (const std::string& name : all) {
    const std::string word = "`" + name + "`";
    if (width > 0) text << (width + word.size() > 116 ? ",\n" : ", ");
    width = width + word.size() > 116 ? word.size() : width + word.size() + 2;
    text << word;
  }
  text << "\n";
  return text.str();
}

}  // namespace

std::string page() {
  std::ostringstream text;
  text
      << "# Modules on simulated cards\n\n"
         "Every module, functional, utility and optimizer of LibTorch's C++ headers runs forward "
         "and\n"
         "backward on a simulated card, in fp32 and bf16, shape-only and computing. Both modes "
         "leave\n"
         "the same shapes, strides, types and bytes and the same events of the card's memory, and\n"
         "computing gives the CPU's values to the bit. The exceptions are below, each with its "
         "reason.\n"
         "\n"
         "This page is made of the cases in `tests/coverage/`, which run with `make test`.\n";
  text << table_of(
      of(&Limits::refused), "Refused shape-only where classes are not known",
      "What comes out, and how large it is, depends on classes. They are known if they come from\n"
      "the host, or are made from what is known; of others, random ones for instance, this runs\n"
      "in compute mode.");
  text << table_of(of(&Limits::not_simulated), "Refused in both modes",
                   "Not simulated, and so it says.");
  text << table_of(
      of(&Limits::reads_values), "Goes by values",
      "Runs in both modes, but decides by values how to go on. Shape-only, values read as\n"
      "zero, so it may take another way than a training with data.");
  text << table_of(of(&Limits::fp32_only), "Not in bf16",
                   "CUDA has no kernel for it, or it is not meant for parameters in bf16.");
  text << table_of(
      of(&Limits::no_bf16_cpu), "Not in bf16 on the CPU",
      "Runs on a simulated card as on CUDA; there are no values of the CPU to compare with.");
  text << table_of(of(&Limits::not_exact), "Not to the bit",
                   "The values are not those of the CPU's run.");
  text << table_of(not_exact_channels_last, "Not to the bit with channels last",
                   "Images and volumes in that layout; in rows they are.");
  text << table_of(unsteady_in_bf16, "Not compared in bf16",
                   "The CPU's kernel gives other values from run to run.");
  text << names("Names of the headers", true);
  text << names("Besides", false);
  return text.str();
}

}  // namespace headroom::coverage
