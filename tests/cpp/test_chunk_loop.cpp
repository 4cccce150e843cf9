// The loop of equal chunks, on a simulated device whose streams advance in random order.
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/transfer/chunk_loop.h"
#include "tests/cpp/check.h"
#include "tests/cpp/simulated_driver.h"

namespace sluice::transfer::chunk_loop_tests {
namespace {

using Bytes = std::vector<char>;

constexpr int kNothing = -1;

// What happens to a chunk, and where its source and its result are.
enum class Way {
  computed,   // host, slot, function, slot, host
  through,    // host, slot, host
  trimmed,    // host, slot, function, scratch, slot, host: without the halo
  identical,  // host, slot, slot, host: without the halo, nothing is computed
  on_device,  // host, slot, function, scratch, device: without the halo
  straight,   // host, device
  local,      // device, slot, function, slot, host
};
constexpr Way kWays[] = {Way::computed,  Way::through,  Way::trimmed, Way::identical,
                         Way::on_device, Way::straight, Way::local};

struct Streamed {
  Way way = Way::computed;
  Route in = Route::direct, out = Route::direct;
  int depth = 2, limit = 4, group = 1;
  unsigned seed = 1;
  int broken = kNothing;  // the stream that does not wait
  bool is_free = false;   // copies in wait for nobody
};

// Planes of rows, which are streamed in chunks. In the input, `left` rows precede the chunks and `right` rows follow
// them; the tensors' planes have gaps between them.
//
//   input    |left|chunk 0|chunk 1|...|right|
//   result        |chunk 0|chunk 1|...|
struct Problem {
  explicit Problem(const Streamed& given) : random(given.seed) {
    const bool has_halo = given.way == Way::trimmed || given.way == Way::identical || given.way == Way::on_device;
    left = has_halo ? static_cast<std::int64_t>(random() % 7) : 0;  // a chunk has 3 rows
    right = has_halo ? static_cast<std::int64_t>(random() % 3) : 0;
    planes = given.way == Way::straight ? 1 : 3;
    chunks = 3 + static_cast<std::int64_t>(random() % 20) * given.group;
    added = given.way == Way::through || given.way == Way::identical || given.way == Way::straight ? 0 : 1;
    source.resize(static_cast<std::size_t>(planes * plane_of(chunk_rows(chunks) + left + right)));
    for (char& byte : source) byte = static_cast<char>(random());
    result.assign(static_cast<std::size_t>(planes * plane_of(chunk_rows(chunks))), 'x');
  }

  static std::int64_t chunk_rows(std::int64_t count) { return 3 * count; }
  std::int64_t wide() const { return chunk_rows(1) + left + right; }
  // The bytes from a plane to the next: its rows and a gap. Slots have no gaps.
  std::int64_t plane_of(std::int64_t rows) const { return rows * kRow + kGap; }
  bool is_right() const {
    const std::int64_t rows = chunk_rows(chunks), from = plane_of(rows + left + right), to = plane_of(rows);
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      for (std::int64_t byte = 0; byte < to; ++byte) {
        const char given = source[static_cast<std::size_t>(plane * from + left * kRow + byte)];
        const char wanted = byte < rows * kRow ? static_cast<char>(given + added) : 'x';
        if (result[static_cast<std::size_t>(plane * to + byte)] != wanted) return false;
      }
    }
    return true;
  }

  static constexpr std::int64_t kRow = 160, kGap = 7;
  std::mt19937 random;
  std::int64_t left = 0, right = 0, planes = 1, chunks = 3;
  int added = 0;
  Bytes source, result;
};

// Chunks of a tensor through the loop, in two blocks. Whether all results are right.
bool streams(const Streamed& given) {
  constexpr std::int64_t kRow = Problem::kRow;
  Problem problem(given);
  EngineOptions options;
  options.event_sets = 2 * given.depth;
  options.threads = 2;
  options.ring_buffers = 3;
  options.ring_buffer_bytes = 1024;
  auto made = std::make_unique<SimulatedDriver>(options.events(), given.seed, given.broken);
  SimulatedDriver& driver = *made;
  Engine engine(std::move(made), options);

  const Way way = given.way;
  const std::int64_t rows = Problem::chunk_rows(1), wide = problem.wide(), planes = problem.planes;
  const bool has_scratch = way == Way::trimmed || way == Way::on_device;
  const auto slots = static_cast<std::size_t>(given.depth);
  std::vector<Bytes> inside(slots, Bytes(static_cast<std::size_t>(planes * wide * kRow)));
  std::vector<Bytes> outside(slots, Bytes(static_cast<std::size_t>(planes * rows * kRow)));
  Bytes scratch(inside[0].size());

  const std::int64_t source_plane =
      problem.plane_of(Problem::chunk_rows(problem.chunks) + problem.left + problem.right);
  const std::int64_t result_plane = problem.plane_of(Problem::chunk_rows(problem.chunks));
  const auto in_slots = [](std::vector<Bytes>& memory, std::int64_t offset) {
    Place place;
    for (Bytes& bytes : memory) place.slots.push_back(bytes.data() + offset);
    return place;
  };
  const auto shared = [&](Bytes& memory, std::int64_t offset, std::int64_t step) {
    return Place{std::vector<char*>(slots, memory.data() + offset), step};
  };
  const auto end = [&](Bytes& host, std::int64_t extent, std::int64_t plane, Place place, Route route) {
    const std::int64_t sizes[] = {planes, extent * kRow}, strides[] = {plane, 1};
    return ChunkEnd{{make_copy(host.data(), nullptr, 1, 2, sizes, strides), route}, rows * kRow, std::move(place)};
  };
  const std::int64_t trimmed = problem.left * kRow, span = rows * kRow, narrow_pitch = span, wide_pitch = wide * kRow;

  ChunkLoop loop;
  loop.depth = given.depth;
  loop.event_sets = options.event_sets;
  loop.limit = given.limit;
  loop.group = given.group;
  if (way == Way::through) loop.freed = Mark::stored;
  if (way == Way::straight || given.is_free) loop.freed = std::nullopt;
  const Place result = shared(problem.result, 0, span);
  if (way == Way::local) {
    const Place source = shared(problem.source, 0, span);
    loop.before = {{in_slots(inside, 0), source, wide_pitch, planes, wide_pitch, source_plane}};
  } else {
    const Place arrives = way == Way::straight ? result : in_slots(inside, 0);
    loop.in = {end(problem.source, wide, source_plane, arrives, given.in)};
  }
  if (way == Way::trimmed) {
    loop.after = {{in_slots(outside, 0), shared(scratch, trimmed, 0), span, planes, narrow_pitch, wide_pitch}};
  } else if (way == Way::identical) {
    loop.after = {{in_slots(outside, 0), in_slots(inside, trimmed), span, planes, narrow_pitch, wide_pitch}};
  } else if (way == Way::on_device) {
    loop.after = {{result, shared(scratch, trimmed, 0), span, planes, result_plane, wide_pitch}};
  }
  const bool is_on_host = way != Way::on_device && way != Way::straight;
  if (is_on_host) {
    const Place leaves = in_slots(way == Way::through ? inside : outside, 0);
    loop.out = {end(problem.result, rows, result_plane, leaves, given.out)};
  }

  engine.begin(nullptr);
  const auto compute = [&](int slot) {
    if (problem.added == 0) return;
    const auto i = static_cast<std::size_t>(slot);
    Bytes &from = inside[i], &to = has_scratch ? scratch : outside[i];
    driver.enqueue(Stream::compute, [&] {
      for (std::size_t j = 0; j < to.size(); ++j) to[j] = static_cast<char>(from[j] + 1);
      return true;
    });
  };
  const std::int64_t half = 1 + static_cast<std::int64_t>(problem.random()) % (problem.chunks - 1);
  for (const auto& [first, last] : {std::pair{std::int64_t{0}, half}, std::pair{half, problem.chunks}}) {
    loop.sequence = loop.first = first;
    loop.count = last - first;
    loop.fetched = loop.stored = 0;
    while (loop.stored < loop.count) loop.run(engine, compute, given.seed % 2 == 0 ? 1000 : 0);  // 0: for each chunk
  }
  while (!engine.wait_landed(problem.chunks, 100)) {
  }
  engine.join(nullptr);  // the caller's stream reads results on the device from now on
  const bool right = problem.is_right();
  CHECK(engine.error().empty());
  CHECK(engine.drain(1000));
  return right;
}

TEST(random_orders_are_right) {
  for (unsigned i = 1; i <= test::rounds(1000); ++i) {
    Streamed given{.way = kWays[i % std::size(kWays)], .seed = test::seed() + i};
    given.in = i % 3 == 0 ? Route::ring : Route::direct;
    given.out = given.way == Way::through || i % 5 > 2 ? Route::direct : Route::ring;
    given.depth = 1 + static_cast<int>(i % 8);
    const int groups = 2 + static_cast<int>(i % 3);  // in `depth`
    if (given.depth % groups == 0) given.group = given.depth / groups;
    given.limit = given.depth * (1 + static_cast<int>(i % 2));
    if (!streams(given)) {
      std::cerr << "seed " << given.seed << ", case " << i << "\n";
      CHECK(false);
    }
  }
}

// Whether a stream's waits order something. Copies into a result that nobody else writes need none. That a chunk has
// landed frees its slot, also where nothing is copied out.
bool must_wait(Way way, Stream stream) {
  if (stream == Stream::h2d) return way != Way::straight && way != Way::local;
  return stream == Stream::compute || way != Way::straight;
}

TEST(a_missing_edge_of_the_loop_is_seen) {
  for (Way way : kWays) {
    for (Stream stream : {Stream::h2d, Stream::compute, Stream::d2h}) {
      bool seen = false;
      for (unsigned seed = 1; seed <= 200 && !seen; ++seed) {
        const int group = 1 + static_cast<int>(seed % 2);
        seen = !streams(
            {.way = way, .depth = 2 * group, .group = group, .seed = seed, .broken = static_cast<int>(stream)});
      }
      if (seen != must_wait(way, stream))
        std::cerr << "way " << static_cast<int>(way) << ", stream " << static_cast<int>(stream) << "\n";
      CHECK(seen == must_wait(way, stream));
    }
  }
}

TEST(a_missing_edge_to_a_slot_is_seen) {
  for (Way way : {Way::computed, Way::through, Way::identical, Way::on_device}) {
    bool seen = false;
    for (unsigned seed = 1; seed <= 200 && !seen; ++seed) seen = !streams({.way = way, .seed = seed, .is_free = true});
    CHECK(seen);
  }
}

// Counts the events that copies from the host record.
class CountingDriver final : public SimulatedDriver {
 public:
  using SimulatedDriver::SimulatedDriver;
  bool record(Stream stream, int event) override {
    events += stream == Stream::h2d ? 1 : 0;
    return SimulatedDriver::record(stream, event);
  }
  int events = 0;
};

TEST(a_group_has_one_event_and_the_last_chunks_have_their_own) {
  EngineOptions options;
  options.event_sets = 16;
  auto made = std::make_unique<CountingDriver>(options.events(), 1, kNothing);
  CountingDriver& driver = *made;
  Engine engine(std::move(made), options);
  Bytes host(4000), slot(100);
  const std::int64_t sizes[] = {100}, strides[] = {1};
  ChunkLoop loop;
  loop.depth = 8;
  loop.event_sets = loop.limit = 16;
  loop.group = 4;
  loop.count = 40;
  loop.in = {{{make_copy(host.data(), nullptr, 1, 1, sizes, strides), Route::direct},
              100,
              {std::vector<char*>(8, slot.data())}}};
  loop.out = loop.in;
  engine.begin(nullptr);
  driver.events = 0;
  while (loop.stored < loop.count) loop.run(engine, [](int) {}, 1000);
  CHECK(driver.events == 8 + 8);
  CHECK(engine.wait_landed(40, 1000));
  CHECK(engine.take_times().size() == 40);
  CHECK(engine.drain(1000));
}

// The chunks that a loop stores on a device whose sixth copy fails.
std::int64_t stored_before_a_failure(ChunkLoop loop) {
  EngineOptions options;
  auto made = std::make_unique<SimulatedDriver>(options.events(), 1, kNothing);
  made->fail_after(5);
  Engine engine(std::move(made), options);
  engine.begin(nullptr);
  loop.run(engine, [](int) {}, 1000);
  CHECK(engine.error() == "no more copies");
  CHECK(engine.drain(1000));
  return loop.stored;
}

TEST(a_loop_ends_where_a_copy_fails) {
  Bytes host(3000), slot(100);
  const std::int64_t sizes[] = {100}, strides[] = {1};
  ChunkLoop loop;
  loop.count = 30;
  loop.in = {{{make_copy(host.data(), nullptr, 1, 1, sizes, strides), Route::direct}, 100, {{slot.data()}}}};
  loop.out = loop.in;
  CHECK(stored_before_a_failure(loop) < loop.count);
}

TEST(a_loop_ends_where_a_copy_within_the_device_fails) {
  Bytes slot(100), result(3000);
  ChunkLoop loop;
  loop.count = 30;
  loop.after = {{{{result.data()}, 100}, {{slot.data()}}, 100, 1, 100, 100}};
  CHECK(stored_before_a_failure(loop) == 6);
}

TEST(an_error_of_the_device_is_told_where_the_caller_completes_a_chunk) {
  EngineOptions options;
  auto made = std::make_unique<SimulatedDriver>(options.events(), 1, kNothing);
  SimulatedDriver& driver = *made;
  Engine engine(std::move(made), options);
  Bytes host(100), slot(100);
  const std::int64_t sizes[] = {100}, strides[] = {1};
  for (Route route : {Route::direct, Route::ring}) {
    engine.begin(nullptr);
    auto command = std::make_shared<Command>();
    command->copies.push_back({make_copy(host.data(), slot.data(), 1, 1, sizes, strides), route});
    engine.store(command);
    driver.lose();
    while (!engine.wait_landed(1, 100)) {
    }
    CHECK(engine.error() == "the device is lost");
  }
}

}  // namespace
}  // namespace sluice::transfer::chunk_loop_tests
