#include "headroom/watch/metrics.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "headroom/lease/lease_text.h"
#include "headroom/lease/ledger.h"

namespace headroom::watch {
namespace {

using Value = std::optional<double>;

struct CardGauge {
  const char* name;
  const char* help;
  Value (*read)(const gpu::Card&);
};

template <typename Member>
Value bytes_of(const gpu::Card& card, Member part) {
  if (!card.memory) return {};
  const std::optional<Bytes> bytes = (*card.memory).*part;
  return bytes ? Value(static_cast<double>(bytes->count)) : Value();
}

Value ratio(const std::optional<int>& percent) {
  return percent ? Value(*percent / 100.0) : Value();
}

constexpr CardGauge kCardGauges[] = {
    {"headroom_gpu_memory_total_bytes", "Memory of the card.",
     [](const gpu::Card& c) { return bytes_of(c, &gpu::CardMemory::total); }},
    {"headroom_gpu_memory_used_bytes", "Memory in use by all processes.",
     [](const gpu::Card& c) { return bytes_of(c, &gpu::CardMemory::used); }},
    {"headroom_gpu_memory_free_bytes", "Memory that the driver would still hand out.",
     [](const gpu::Card& c) { return bytes_of(c, &gpu::CardMemory::free); }},
    {"headroom_gpu_memory_reserved_bytes", "Memory the driver keeps for itself.",
     [](const gpu::Card& c) { return bytes_of(c, &gpu::CardMemory::reserved); }},
    {"headroom_gpu_utilization_ratio", "Share of the last window with any kernel running.",
     [](const gpu::Card& c) { return ratio(c.utilization); }},
    {"headroom_gpu_memory_utilization_ratio",
     "Share of the last window in which memory was read or written.",
     [](const gpu::Card& c) { return ratio(c.memory_utilization); }},
    {"headroom_gpu_temperature_celsius", "Temperature of the chip.",
     [](const gpu::Card& c) -> Value { return c.temperature_c; }},
    {"headroom_gpu_power_watts", "Power drawn.",
     [](const gpu::Card& c) -> Value { return c.power_w; }},
};

Labels labels_of(const gpu::Card& card) {
  return {
      {"index", std::to_string(card.index)}, {"uuid", to_string(card.uuid)}, {"name", card.name}};
}

Labels with(Labels labels, const Labels& more) {
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

bool is_recent(const gpu::Card& card, const MetricsOptions& options, Clock::time_point now) {
  const auto old = age(card, now);
  return old && *old <= options.fresh_for;
}

// The family with a series for each card for which `read` knows a value.
template <typename Read>
Family of_cards(const gpu::Machine& machine, const char* name, const char* help, Read&& read) {
  Family family{.name = name, .help = help};
  for (const gpu::Card& card : machine.cards)
    if (const Value value = read(card)) family.series.push_back({labels_of(card), *value});
  return family;
}

Family of_machine(const char* name, const char* help, double value) {
  return {.name = name, .help = help, .series = {{{}, value}}};
}

bool answers(const gpu::Machine& machine, const MetricsOptions& options, Clock::time_point now) {
  return (machine.driver || machine.simulated) && !machine.silent &&
         std::all_of(machine.cards.begin(), machine.cards.end(), [&](const gpu::Card& card) {
           return !card.stuck && is_recent(card, options, now);
         });
}

Family process_family(const gpu::Machine& machine, const MetricsOptions& options,
                      Clock::time_point now) {
  Family family{.name = "headroom_gpu_process_memory_used_bytes",
                .help = "Memory of one process on one card."};
  for (const gpu::Card& card : machine.cards) {
    if (!card.processes || !is_recent(card, options, now)) continue;
    for (const gpu::GpuProcess& process : *card.processes)
      if (process.pid && process.used)
        family.series.push_back({with(labels_of(card), {{"pid", std::to_string(*process.pid)},
                                                        {"user", process.user.value_or("")}}),
                                 static_cast<double>(process.used->count)});
  }
  return family;
}

Family reserved_family(const gpu::Machine& machine, const lease::Contents& contents) {
  Family family{.name = "headroom_lease_reserved_bytes",
                .help = "Memory reserved by the leases of one user."};
  for (const gpu::Card& card : machine.cards) {
    std::map<std::string, Bytes> by_user;
    for (const lease::Claim& lease : contents.leases)
      if (const Bytes share = reserved_on(lease, card.uuid); share.count > 0)
        by_user[user_of(lease)] += share;
    for (const auto& [user, reserved] : by_user)
      family.series.push_back(
          {with(labels_of(card), {{"user", user}}), static_cast<double>(reserved.count)});
  }
  return family;
}

// How many wait, for how much and how long. A waiter that does not look is stopped and does not
// count.
Families queue_families(const lease::Queue& waiting) {
  const WallTime now = std::chrono::system_clock::now();
  double jobs = 0, need = 0;
  Seconds longest{0};
  for (const lease::Waiter& waiter : waiting) {
    if (!waiter.looking) continue;
    jobs += 1;
    need += static_cast<double>(waiter.wish.need.count) * waiter.wish.count;
    longest = std::max(longest, Seconds(now - waiter.since));
  }
  return {of_machine("headroom_waiting_jobs", "Jobs that wait for memory.", jobs),
          of_machine("headroom_waiting_need_bytes",
                     "Memory that the waiting jobs need, on all their cards together.", need),
          of_machine("headroom_waiting_longest_seconds", "The longest time that a job has waited.",
                     longest.count())};
}

struct JobFigure {
  const char* name;
  const char* help;
  Value (*read)(const JobStatus&);
  MetricKind kind = MetricKind::gauge;
};

Value known(const std::optional<long long>& count) {
  return count ? Value(static_cast<double>(*count)) : Value();
}

constexpr JobFigure kJobFigures[] = {
    {"headroom_job_step", "Last committed step of a training.",
     [](const JobStatus& j) { return known(j.step); }},
    {"headroom_job_planned_steps", "Steps of the whole training.",
     [](const JobStatus& j) { return known(j.steps); }},
    {"headroom_job_loss", "Loss of the last step.", [](const JobStatus& j) { return j.loss; }},
    {"headroom_job_batch_rows", "Rows in one step.",
     [](const JobStatus& j) { return known(j.batch); }},
    {"headroom_job_micro_batch_rows", "Rows in one forward pass.",
     [](const JobStatus& j) { return known(j.micro_batch); }},
    {"headroom_job_rows_per_second", "Rows trained in a second.",
     [](const JobStatus& j) { return j.rows_per_s; }},
    {"headroom_job_ooms_survived", "Times that the training ran out of memory and went on.",
     [](const JobStatus& j) -> Value { return static_cast<double>(j.ooms_survived); },
     MetricKind::counter},
};

Labels labels_of(const JobStatus& job) {
  return {{"pid", std::to_string(job.pid)}, {"what", job.what}};
}

void append(Families& to, Families more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

}  // namespace

Families card_metrics(const gpu::Machine& machine, MetricsOptions options, Clock::time_point now) {
  Families all{of_machine("headroom_driver_up",
                          "1 while the driver answers; 0 if it hangs or there is none.",
                          answers(machine, options, now) ? 1 : 0)};
  for (const CardGauge& gauge : kCardGauges)
    all.push_back(of_cards(machine, gauge.name, gauge.help, [&](const gpu::Card& card) {
      return is_recent(card, options, now) ? gauge.read(card) : Value();
    }));
  // When the driver hangs, all other series of the card disappear; an alert can watch this one.
  all.push_back(of_cards(machine, "headroom_gpu_sample_age_seconds",
                         "Time since the card last answered.", [&](const gpu::Card& card) {
                           const auto old = age(card, now);
                           return old ? Value(old->count()) : Value();
                         }));
  if (options.processes) all.push_back(process_family(machine, options, now));
  return all;
}

Families lease_metrics(const gpu::Machine& machine, const lease::Contents& contents,
                       MetricsOptions options, Clock::time_point now) {
  const auto can_be_leased = [&](const gpu::Card& card) {
    return is_recent(card, options, now) && !card.mig_enabled;
  };
  Families all{
      of_cards(machine, "headroom_gpu_memory_usable_bytes",
               "Memory that a new job could reserve now.",
               [&](const gpu::Card& card) {
                 const auto room = can_be_leased(card) ? usable_now(card) : std::nullopt;
                 return room ? Value(static_cast<double>(room->count)) : Value();
               }),
      of_cards(machine, "headroom_lease_unused_bytes", "Reserved by leases and not used yet.",
               [&](const gpu::Card& card) {
                 return can_be_leased(card) ? Value(static_cast<double>(card.withheld.now.count))
                                            : Value();
               }),
      reserved_family(machine, contents),
      of_machine("headroom_leases", "Leases of this machine.",
                 static_cast<double>(contents.leases.size()))};
  append(all, queue_families(contents.waiting));
  return all;
}

Families job_metrics(const std::vector<JobStatus>& jobs, WallTime now) {
  Families all;
  for (const JobFigure& figure : kJobFigures) {
    Family family{.name = figure.name, .kind = figure.kind, .help = figure.help};
    for (const JobStatus& job : jobs)
      if (const Value value = figure.read(job)) family.series.push_back({labels_of(job), *value});
    all.push_back(std::move(family));
  }
  Family places{.name = "headroom_job_gpu",
                .help = "1 for each GPU of a training: joins it to the metrics of the card."};
  for (const JobStatus& job : jobs)
    for (const std::string& uuid : job.gpus)
      places.series.push_back({with(labels_of(job), {{"uuid", uuid}}), 1});
  all.push_back(std::move(places));
  Family ages{.name = "headroom_job_status_age_seconds",
              .help = "Time since the training last published its status."};
  for (const JobStatus& job : jobs)
    ages.series.push_back({labels_of(job), std::max(0.0, Seconds(now - job.updated).count())});
  all.push_back(std::move(ages));
  return all;
}

Families metrics_now(const gpu::Machine& machine, MetricsOptions options) {
  const lease::Contents leases = lease::contents_now();
  Families all = card_metrics(machine, options);
  append(all, lease_metrics(lease::with_promises(machine, leases), leases, options));
  append(all, job_metrics(job_statuses()));
  return all;
}

}  // namespace headroom::watch
