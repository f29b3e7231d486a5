#include "tests/oracle/minimise.h"

#include <algorithm>
#include <map>
#include <set>

namespace headroom::oracle {
namespace {

using allocator::Operation;
using Kind = Operation::Kind;
using Operations = std::vector<Operation>;

// Keeps legal operations only: drops uses of blocks that were never allocated, and ends of pools
// that were never begun.
Operations legal(const Operations& operations) {
  Operations kept;
  std::set<std::uint32_t> live;
  std::map<std::int64_t, int> uses;
  std::set<std::int64_t> open, released;
  for (const Operation& o : operations) {
    bool keep = true;
    if (o.kind == Kind::allocate) keep = live.insert(o.id).second;
    if (o.kind == Kind::free) keep = live.erase(o.id) > 0;
    if (o.kind == Kind::record_stream) keep = live.contains(o.id);
    if (o.kind == Kind::begin_pool) {
      keep = !released.contains(o.bytes) && open.insert(o.bytes).second;
      if (keep) ++uses[o.bytes];
    }
    if (o.kind == Kind::end_pool) keep = open.erase(o.bytes) > 0;
    if (o.kind == Kind::release_pool) {
      keep = !open.contains(o.bytes) && uses[o.bytes] > 0;
      if (keep && --uses[o.bytes] == 0) released.insert(o.bytes);
    }
    if (keep) kept.push_back(o);
  }
  return kept;
}

bool differ(const Stream& stream) {
  return duel([&] { return stream; }).differs;
}

// Takes the change if both still differ.
bool attempt(Stream& stream, const Stream& changed) {
  if (!differ(changed)) return false;
  stream = changed;
  return true;
}

// Nothing after the first difference matters.
void cut_end(Stream& stream) {
  const Outcome outcome = duel([&] { return stream; });
  Stream shorter = stream;
  Operations& operations = shorter.content.operations;
  operations.resize(std::min<std::size_t>(operations.size(), outcome.at + 1));
  attempt(stream, shorter);
}

// Leaves out ever smaller parts.
bool cut_parts(Stream& stream) {
  bool any = false;
  for (std::size_t part = stream.content.operations.size() / 2; part > 0; part /= 2) {
    for (std::size_t from = 0; from < stream.content.operations.size();) {
      Stream shorter = stream;
      Operations& operations = shorter.content.operations;
      const auto begin = operations.begin() + static_cast<std::ptrdiff_t>(from);
      const std::size_t count = std::min(part, operations.size() - from);
      operations.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
      operations = legal(operations);
      if (attempt(stream, shorter))
        any = true;
      else
        from += part;
    }
  }
  return any;
}

void simplify_setup(Stream& stream) {
  const auto with = [&](auto change) {
    Stream changed = stream;
    change(changed.setup);
    attempt(stream, changed);
  };
  with([](Setup& setup) { setup.addresses = allocator::AddressPolicy::ascending; });
  with([](Setup& setup) { setup.events = allocator::EventRule::at_once; });
  with([](Setup& setup) { setup.fraction.reset(); });
  with([](Setup& setup) { setup.capacity = allocator::kUnlimited; });
  with([](Setup& setup) { setup.settings.clear(); });
}

// Round numbers read better.
void simplify_numbers(Stream& stream) {
  for (std::size_t i = 0; i < stream.content.operations.size(); ++i) {
    Stream changed = stream;
    Operation& o = changed.content.operations[i];
    if (o.kind == Kind::allocate && o.stream != 0) {
      o.stream = 0;
      attempt(stream, changed);
    }
    if (o.kind != Kind::allocate) continue;
    for (const std::int64_t unit :
         {std::int64_t{1} << 30, std::int64_t{1} << 20, std::int64_t{512}}) {
      changed = stream;
      std::int64_t& bytes = changed.content.operations[i].bytes;
      if (bytes % unit == 0) break;
      bytes = std::max(unit, bytes / unit * unit);
      if (attempt(stream, changed)) break;
    }
  }
}

}  // namespace

Stream minimised(Stream stream) {
  if (!differ(stream)) return stream;
  cut_end(stream);
  simplify_setup(stream);
  while (cut_parts(stream)) {
  }
  simplify_numbers(stream);
  cut_parts(stream);
  return stream;
}

std::string to_options(const Setup& setup) {
  std::string text = "--capacity " + std::to_string(setup.capacity.count);
  if (!setup.settings.empty()) text += " --allocator '" + setup.settings + "'";
  if (setup.fraction) text += " --fraction " + std::to_string(*setup.fraction);
  if (setup.events == allocator::EventRule::when_told) text += " --hold-events";
  if (setup.addresses == allocator::AddressPolicy::descending) text += " --addresses descending";
  if (setup.addresses == allocator::AddressPolicy::lowest) text += " --addresses lowest";
  return text;
}

std::string to_text(const Stream& stream) {
  return "# class " + stream.class_name + "\n# " + to_options(stream.setup) + "\n" +
         to_plain_form(stream.content.operations, stream.content.settings_texts);
}

}  // namespace headroom::oracle
