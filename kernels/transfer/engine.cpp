#include "kernels/transfer/engine.h"

#include <chrono>
#include <thread>
#include <utility>

namespace sluice::transfer {
namespace {

// Most chunks whose times are kept until they are taken.
constexpr std::size_t kTimesKept = 1 << 16;

// The times of one of `count` chunks whose steps were issued together: an equal part of each.
Times share(const Times& all, int chunk, int count) {
  Times part;
  for (std::size_t begin = 0; begin < all.size(); begin += 2) {
    const std::int64_t length = all[begin + 1] - all[begin];
    part[begin] = all[begin] + length * chunk / count;
    part[begin + 1] = all[begin] + length * (chunk + 1) / count;
  }
  return part;
}

}  // namespace

Engine::Engine(std::unique_ptr<Driver> driver, const EngineOptions& options)
    : options_(options),
      driver_(std::move(driver)),
      timeline_(*driver_, options.event_sets, start_event()),
      in_ring_(*driver_, options.ring_buffers, options.ring_buffer_bytes, ring_event(0)),
      out_ring_(*driver_, options.ring_buffers, options.ring_buffer_bytes, ring_event(options.ring_buffers)),
      pending_(static_cast<std::size_t>(options.event_sets * kMarks)) {
  const auto fail_with = [this](const std::string& text) { fail(text); };
  const auto failed = [this] { return failed_.load(); };
  const auto begun = [this](Stream stream) {
    return [this, stream](const Command& command) { timeline_.issued(stream, command.set, command.waits); };
  };
  in_ = make_h2d_worker(*driver_, pool_, in_ring_,
                        {begun(Stream::h2d), [this](int set) { on_issued(set, Mark::fetched); }, [](const Command&) {},
                         [] {}, fail_with, failed});
  out_ = make_d2h_worker(
      *driver_, pool_, out_ring_,
      {begun(Stream::d2h), [this](int set) { on_issued(set, Mark::stored); },
       [this](const Command& command) { on_landed(command); }, [this] { land(/*wait=*/true); }, fail_with, failed});
  pool_.start(options.threads, driver_->node());  // last: it needs only one of the threads that are left
}

Engine::~Engine() {
  while (!drain(1000)) {
  }
  in_.reset();
  out_.reset();
}

void Engine::begin(void* caller_stream) {
  {
    const std::lock_guard lock(mutex_);
    error_.clear();
    failed_ = false;
    landed_ = 0;
    times_.clear();
    for (auto& direction : moved_) {
      for (auto& bytes : direction) bytes = 0;
    }
  }
  driver_->record_foreign(caller_stream, caller_event());
  for (int stream = 0; stream < kStreams; ++stream) driver_->wait(static_cast<Stream>(stream), caller_event());
  if (!driver_->record(Stream::compute, start_event())) fail(driver_->error());
  timeline_.begin();
  // Work on that stream may still be writing a pinned source; threads must not read it before.
  host_must_wait_ = true;
}

void Engine::submit(CopyWorker& worker, Mark end, std::shared_ptr<Command> command, Lander lander) {
  auto& moved = moved_[end == Mark::fetched ? 0 : 1];
  for (const ChunkCopy& copy : command->copies) moved[static_cast<int>(copy.route)] += copy.bytes.bytes();
  if (command->immediate()) {
    worker.issue(*command);
    command->issued = true;
    if (end != Mark::stored) return;
    if (lander == Lander::caller && worker.idle()) {
      const std::lock_guard lock(landing_mutex_);
      landings_.push_back({std::move(command), nullptr});
    } else {
      worker.push(std::move(command));
    }
    return;
  }
  if (host_must_wait_ && end == Mark::fetched) {
    command->host_waits.push_back(caller_event());
    host_must_wait_ = false;
  }
  if (RingBuffer* const buffer = worker.issue_small(*command)) {
    if (end != Mark::stored) return;
    const std::lock_guard lock(landing_mutex_);
    landings_.push_back({std::move(command), buffer});
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ++pending_[static_cast<std::size_t>(event_of(command->set, end))];
  }
  worker.push(std::move(command));
}

void Engine::fetch(std::shared_ptr<Command> command) {
  hold(Stream::h2d);
  submit(*in_, Mark::fetched, std::move(command), Lander::worker);
}
void Engine::store(std::shared_ptr<Command> command, Lander lander) {
  hold(Stream::d2h);
  submit(*out_, Mark::stored, std::move(command), lander);
}

bool Engine::issued(const std::vector<int>& waits) const {
  for (int event : waits) {
    if (pending_[static_cast<std::size_t>(event)] != 0) return false;
  }
  return true;
}

bool Engine::acquire(const std::vector<int>& waits, int set, int milliseconds) {
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return issued(waits); })) return false;
  }
  for (int event : waits) {
    if (!driver_->wait(Stream::compute, event)) fail(driver_->error());
  }
  if (!driver_->shares_memory()) hold(Stream::compute);  // a host computes on the calling thread
  timeline_.issued(Stream::compute, set, waits);
  return true;
}

void Engine::disturb(unsigned seed, int microseconds) {
  random_.seed(seed);
  most_delay_ = microseconds;
}

void Engine::hold(Stream stream) {
  if (most_delay_ > 0 && random_() % 2 == 0) driver_->delay(stream, static_cast<int>(random_() % most_delay_));
}

void Engine::move(const DeviceCopy& copy) {
  if (!driver_->copy(Stream::compute, copy)) fail(driver_->error());
}

void Engine::commit(int set) {
  if (!driver_->record(Stream::compute, event_of(set, Mark::computed))) fail(driver_->error());
}

bool Engine::wait_read(int set, bool directly, int milliseconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  const int event = event_of(set, Mark::fetched);
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return issued({event}); })) return false;
  }
  while (directly && !driver_->complete(event)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();  // the copy engine is idle until the caller continues, and a sleep takes 60 us
  }
  return true;
}

bool Engine::wait_landed(std::int64_t count, int milliseconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (land(/*wait=*/false) && landed_.load() < count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return landed_.load() >= count; });
}

bool Engine::land(bool wait) {
  std::unique_lock lock(landing_mutex_);
  while (!landings_.empty()) {
    const Landing& oldest = landings_.front();
    const int stored = event_of(oldest.command->set, Mark::stored);
    if (!driver_->complete(stored)) {
      if (!wait) return true;
      lock.unlock();
      (void)driver_->synchronize(stored);
      lock.lock();
      continue;  // another thread may have completed it
    }
    if (!driver_->synchronize(stored)) fail(driver_->error());  // an event is complete after an error too
    if (oldest.buffer != nullptr) out_->unpack(*oldest.command, *oldest.buffer);
    const std::shared_ptr<Command> landed = oldest.command;
    landings_.pop_front();
    count_landed(*landed);
  }
  return false;
}

bool Engine::drain(int milliseconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  const auto pause = std::chrono::microseconds(50);
  while (!in_->idle() || !out_->idle()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause);
  }
  for (int stream = 0; stream < kStreams; ++stream) driver_->record(static_cast<Stream>(stream), drain_event(stream));
  for (int stream = 0; stream < kStreams; ++stream) {
    while (!driver_->complete(drain_event(stream))) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, pause);
    }
  }
  land(/*wait=*/true);
  return true;
}

void Engine::join(void* caller_stream) {
  driver_->record(Stream::compute, drain_event(static_cast<int>(Stream::compute)));
  driver_->make_wait(caller_stream, drain_event(static_cast<int>(Stream::compute)));
}

void Engine::on_issued(int set, Mark mark) {
  {
    const std::lock_guard lock(mutex_);
    --pending_[static_cast<std::size_t>(event_of(set, mark))];
  }
  changed_.notify_all();
}

void Engine::on_landed(const Command& command) {
  land(/*wait=*/true);  // chunks that the caller completes were issued before
  count_landed(command);
}

void Engine::count_landed(const Command& command) {
  const Times times = failed_ ? Times{} : timeline_.landed(command.set);
  {
    const std::lock_guard lock(mutex_);
    for (int chunk = 0; chunk < command.chunks && times_.size() < kTimesKept; ++chunk) {
      times_.push_back(share(times, chunk, command.chunks));
    }
    landed_ += command.chunks;
  }
  changed_.notify_all();
}

void Engine::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (error_.empty()) error_ = text.empty() ? "a copy failed" : text;
  failed_ = true;
}

std::string Engine::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::vector<Times> Engine::take_times() {
  const std::lock_guard lock(mutex_);
  return std::exchange(times_, {});
}

std::vector<std::int64_t> Engine::counters() const {
  std::vector<std::int64_t> all;
  for (const auto& direction : moved_) {
    for (const auto& bytes : direction) all.push_back(bytes.load());
  }
  all.push_back(in_ring_.allocated() + out_ring_.allocated());
  return all;
}

}  // namespace sluice::transfer
