#include "hub/downloads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "hub/repo.h"

namespace kvasir::hub {
namespace {

constexpr std::size_t kMostWaiting = 100, kMostEnded = 100;

bool has_ended(DownloadState state) noexcept {
  return state != DownloadState::queued && state != DownloadState::running;
}

struct Job {
  Download shown;
  Downloads::Wanted wanted;
  std::atomic<bool> cancel{false};
};

bool is_same(const Downloads::Wanted& a, const Downloads::Wanted& b) {
  return a.repo == b.repo && a.include == b.include && a.exclude == b.exclude;
}

}  // namespace

struct Downloads::Impl {
  const HubOptions options;
  const std::function<void(const Download&)> finished;
  mutable std::mutex mutex;  // guards everything below, and the `shown` of every job
  std::condition_variable wake;
  std::deque<std::shared_ptr<Job>> jobs;  // shared with the worker while it runs one
  std::uint64_t last_id = 0;
  bool is_closing = false;
  std::thread worker;

  Impl(HubOptions hub_options, std::function<void(const Download&)> on_finished)
      : options(std::move(hub_options)), finished(std::move(on_finished)) {}

  std::shared_ptr<Job> next() {  // null: closing
    std::unique_lock lock(mutex);
    std::shared_ptr<Job> found;
    wake.wait(lock, [&] {
      const auto it = std::find_if(jobs.begin(), jobs.end(), [](const auto& job) {
        return job->shown.state == DownloadState::queued;
      });
      found = it == jobs.end() ? nullptr : *it;
      return is_closing || found;
    });
    if (is_closing) return nullptr;
    found->shown.state = DownloadState::running;
    return found;
  }

  void work() {
    while (const std::shared_ptr<Job> job = next()) {
      const auto report = run(*job);
      const Download ended = finish(*job, report);
      if (finished) finished(ended);
    }
  }

  Result<GetReport> run(Job& job) {
    GetRequest request;
    request.repo = job.wanted.repo;
    request.include = job.wanted.include;
    request.exclude = job.wanted.exclude;
    request.cancel = &job.cancel;
    request.progress = [&](const Progress& p) {
      const std::lock_guard lock(mutex);
      job.shown.done_bytes = p.done;
      job.shown.total_bytes = p.total;
    };
    try {
      return get(options, request);
    } catch (const std::exception& e) {
      return io_error(e.what());
    }
  }

  Download finish(Job& job, const Result<GetReport>& report) {
    const std::lock_guard lock(mutex);
    if (report) {
      job.shown.state = DownloadState::done;
      job.shown.path = report->model.string();
      job.shown.done_bytes = job.shown.total_bytes = report->total_bytes;
    } else if (report.error().code == Errc::cancelled) {
      job.shown.state = DownloadState::cancelled;
    } else {
      job.shown.state = DownloadState::failed;
      job.shown.error = report.error().what;
    }
    forget_oldest();
    return job.shown;
  }

  void forget_oldest() {
    const auto is_over = [](const auto& job) { return has_ended(job->shown.state); };
    while (std::count_if(jobs.begin(), jobs.end(), is_over) >
           static_cast<std::ptrdiff_t>(kMostEnded))
      jobs.erase(std::find_if(jobs.begin(), jobs.end(), is_over));
  }
};

std::string_view name_of(DownloadState state) noexcept {
  switch (state) {
    case DownloadState::queued:
      return "queued";
    case DownloadState::running:
      return "running";
    case DownloadState::done:
      return "done";
    case DownloadState::failed:
      return "failed";
    case DownloadState::cancelled:
      return "cancelled";
  }
  return "failed";
}

Downloads::Downloads(HubOptions options, std::function<void(const Download&)> finished)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(finished))) {
  impl_->worker = std::thread([impl = impl_.get()] { impl->work(); });
}

Downloads::~Downloads() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_closing = true;
    for (const auto& job : impl_->jobs) job->cancel = true;
  }
  impl_->wake.notify_all();
  impl_->worker.join();
}

Result<std::uint64_t> Downloads::start(const Wanted& wanted) {
  KVASIR_TRY_DO(parse_repo(wanted.repo));
  const std::lock_guard lock(impl_->mutex);
  std::size_t n_waiting = 0;
  for (const auto& job : impl_->jobs) {
    if (has_ended(job->shown.state)) continue;
    if (is_same(job->wanted, wanted) && !job->cancel) return job->shown.id;
    ++n_waiting;
  }
  if (n_waiting >= kMostWaiting) return Error{Errc::capacity, "too many downloads are waiting"};
  auto job = std::make_shared<Job>();
  job->wanted = wanted;
  job->shown.id = ++impl_->last_id;
  job->shown.repo = wanted.repo;
  impl_->jobs.push_back(job);
  impl_->wake.notify_one();
  return job->shown.id;
}

Status Downloads::cancel(std::uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& job : impl_->jobs) {
    if (job->shown.id != id) continue;
    job->cancel = true;
    if (job->shown.state == DownloadState::queued) job->shown.state = DownloadState::cancelled;
    return {};
  }
  return not_found("no download " + std::to_string(id));
}

std::vector<Download> Downloads::list() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Download> out;
  for (const auto& job : impl_->jobs) out.push_back(job->shown);
  return out;
}

json::Value to_json(const Download& d) {
  return json::Object{{"id", d.id},
                      {"repo", d.repo},
                      {"state", name_of(d.state)},
                      {"done_bytes", d.done_bytes},
                      {"total_bytes", d.total_bytes},
                      {"path", d.path.empty() ? json::Value() : json::Value(d.path)},
                      {"error", d.error.empty() ? json::Value() : json::Value(d.error)}};
}

json::Value to_json(const std::vector<Download>& downloads) {
  json::Array out;
  for (const Download& d : downloads) out.push_back(to_json(d));
  return json::Object{{"downloads", std::move(out)}};
}

}  // namespace kvasir::hub
