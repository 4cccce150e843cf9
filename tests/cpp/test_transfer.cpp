// The engine that moves chunks, on a host device: strided copies, packets through the pinned ring, order by events,
// truncated files.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/transfer/engine.h"
#include "kernels/transfer/host_driver.h"
#include "kernels/transfer/numa.h"
#include "kernels/transfer/wide_copy.h"
#include "tests/cpp/check.h"

namespace sluice::transfer {
namespace {

using Bytes = std::vector<char>;

Bytes numbered(std::size_t size) {
  Bytes bytes(size);
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Gathers element by element, by the definition.
Bytes gathered(const Bytes& host, std::int64_t item, const std::vector<std::int64_t>& sizes,
               const std::vector<std::int64_t>& strides) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  Bytes packed;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      at += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    packed.insert(packed.end(), host.begin() + at, host.begin() + at + item);
  }
  return packed;
}

struct Layout {
  std::int64_t item;
  std::vector<std::int64_t> sizes, strides;
  int rank;  // dimensions left outside a span
};

const Layout kLayouts[] = {
    {4, {60}, {4}, 0},
    {4, {5, 12}, {48, 4}, 0},             // contiguous
    {4, {5, 12}, {64, 4}, 1},             // rows of a wider tensor
    {2, {6, 7, 5}, {200, 20, 2}, 2},      // two strides
    {8, {4, 3, 5}, {120, 40, 8}, 0},      // contiguous, three dimensions
    {4, {3, 4, 6}, {192, 48, 8}, 1},      // every second element, one common stride
    {1, {9, 11}, {1, 16}, 2},             // transposed
    {16, {3, 1, 4}, {256, 1000, 32}, 2},  // a dimension of one element
    {4, {3, 4}, {0, 4}, 1},               // expanded
    {3, {5, 7}, {31, 3}, 1},              // a size that is no power of two
};

TEST(strided_copies_gather_any_packet) {
  const Bytes host = numbered(4096);
  for (const Layout& layout : kLayouts) {
    const Bytes wanted = gathered(host, layout.item, layout.sizes, layout.strides);
    const StridedCopy copy =
        make_copy(const_cast<char*>(host.data()), nullptr, layout.item, static_cast<int>(layout.sizes.size()),
                  layout.sizes.data(), layout.strides.data());
    CHECK(copy.rank == layout.rank);
    CHECK(copy.bytes() == static_cast<std::int64_t>(wanted.size()));
    for (std::int64_t begin = 0; begin <= copy.bytes(); begin += 7) {
      for (std::int64_t end = begin; end <= copy.bytes(); end += 13) {
        Bytes packet(static_cast<std::size_t>(end - begin) + 1, 'x');
        gather(copy, begin, end, packet.data());
        CHECK(std::memcmp(packet.data(), wanted.data() + begin, static_cast<std::size_t>(end - begin)) == 0);
        CHECK(packet.back() == 'x');
      }
    }
  }
}

TEST(strided_copies_scatter_what_they_gathered) {
  const Bytes host = numbered(4096);
  for (const Layout& layout : kLayouts) {
    Bytes target(host.size(), 'x');
    StridedCopy copy = make_copy(target.data(), nullptr, layout.item, static_cast<int>(layout.sizes.size()),
                                 layout.sizes.data(), layout.strides.data());
    const Bytes packed = gathered(host, layout.item, layout.sizes, layout.strides);
    const std::int64_t middle = copy.bytes() / 3;
    scatter(copy, 0, middle, packed.data());
    scatter(copy, middle, copy.bytes(), packed.data() + middle);
    CHECK(gathered(target, layout.item, layout.sizes, layout.strides) == packed);
    Bytes touched(host.size(), 'y');  // what is between the rows stays as it was
    copy.host = touched.data();
    const Bytes marks(packed.size(), 'z');
    scatter(copy, 0, copy.bytes(), marks.data());
    for (std::size_t i = 0; i < touched.size(); ++i) CHECK(touched[i] == 'z' || target[i] == 'x');
  }
}

TEST(wide_copies_of_any_alignment) {
  const Bytes source = numbered(20000);
  for (std::size_t from : {0u, 1u, 17u}) {
    for (std::size_t to : {0u, 3u, 63u}) {
      for (std::size_t size : {0u, 1u, 100u, 2047u, 2048u, 2111u, 8192u, 12345u}) {
        Bytes target(source.size(), 'x');
        wide_copy(target.data() + to, source.data() + from, static_cast<std::int64_t>(size));
        CHECK(std::memcmp(target.data() + to, source.data() + from, size) == 0);
        CHECK(target[to + size] == 'x');
        CHECK(to == 0 || target[to - 1] == 'x');
      }
    }
  }
}

TEST(cpu_lists_are_read) {
  CHECK((parse_cpu_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  CHECK(parse_cpu_list("").empty());
  CHECK(!usable_cpus(-1).empty());
  CHECK(!usable_cpus(63).empty());
  CHECK(node_of_pci_device("ffff:ff:ff.0") == -1);
}

// An edge that the harness leaves out, to show that the check detects it.
enum class Missing { none, fetched, stored };

// Runs `chunks` of `bytes` through an engine with its own slots, by the routes round robin; compute adds one to each
// byte.
Bytes streamed(const std::vector<Route>& routes, std::int64_t bytes, int chunks, int depth, unsigned seed,
               Missing missing = Missing::none) {
  EngineOptions options;
  options.event_sets = 2 * depth;
  options.threads = 3;
  options.ring_buffers = 3;
  options.ring_buffer_bytes = 4096;
  Engine engine(make_host_driver(options.events()), options);
  const Bytes source = numbered(static_cast<std::size_t>(bytes * chunks));
  Bytes result(source.size(), 'x');
  std::vector<Bytes> in(static_cast<std::size_t>(depth), Bytes(static_cast<std::size_t>(bytes)));
  std::vector<Bytes> out = in;
  std::mt19937 random(seed);
  const auto jitter = [&](Stream stream) {
    if (seed != 0) engine.delay(stream, static_cast<int>(random() % 200));
  };
  const auto route_of = [&](int chunk) { return routes[static_cast<std::size_t>(chunk) % routes.size()]; };
  const auto command = [&](int chunk, const char* host, char* packed, std::vector<int> waits) {
    auto made = std::make_shared<Command>();
    // The host stores columns one after another, which takes a copy each: issuing a chunk takes as long as on a GPU.
    const std::int64_t columns = bytes % 1000 == 0 ? 1000 : 1, sizes[] = {columns, bytes / columns},
                       strides[] = {1, columns};
    made->set = chunk % options.event_sets;
    made->waits = std::move(waits);
    made->copies.push_back({make_copy(const_cast<char*>(host), packed, 1, 2, sizes, strides), route_of(chunk)});
    return made;
  };
  const auto mark = [&](int chunk, Mark which) { return event_of(chunk % options.event_sets, which); };
  const auto slot = [&](std::vector<Bytes>& slots, int chunk) {
    return slots[static_cast<std::size_t>(chunk % depth)].data();
  };
  const auto fetch = [&](int chunk) {
    if (chunk >= chunks) return;
    while (!engine.wait_landed(chunk - options.event_sets + 1, 100)) {
    }
    std::vector<int> waits;
    if (chunk >= depth) waits = {mark(chunk - depth, Mark::computed)};
    jitter(Stream::h2d);
    engine.fetch(command(chunk, source.data() + chunk * bytes, slot(in, chunk), waits));
  };
  // A chunk counts as landed when it and all before it are complete.
  std::int64_t landed = 0;
  bool complete = true;
  const auto check_landed = [&] {
    const std::int64_t end = engine.landed() * bytes;
    for (; landed < end; ++landed) {
      const auto i = static_cast<std::size_t>(landed);
      complete = complete && result[i] == static_cast<char>(source[i] + 1);
    }
  };
  engine.begin(nullptr);
  for (int chunk = 0; chunk < depth; ++chunk) fetch(chunk);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::vector<int> waits;
    if (missing != Missing::fetched) waits.push_back(mark(chunk, Mark::fetched));
    if (chunk >= depth && missing != Missing::stored) waits.push_back(mark(chunk - depth, Mark::stored));
    while (!engine.acquire(waits, chunk % options.event_sets, 100)) {
    }
    const char* const from = slot(in, chunk);
    char* const to = slot(out, chunk);
    for (std::int64_t i = 0; i < bytes; ++i) to[i] = static_cast<char>(from[i] + 1);
    engine.commit(chunk % options.event_sets);
    jitter(Stream::d2h);
    engine.store(command(chunk, result.data() + chunk * bytes, to, {mark(chunk, Mark::computed)}));
    fetch(chunk + depth);
    check_landed();
  }
  while (!engine.wait_landed(chunks, 100)) {
  }
  check_landed();
  CHECK(complete || missing != Missing::none);
  CHECK(engine.error().empty());
  CHECK(engine.drain(1000));
  CHECK(engine.take_times().size() == static_cast<std::size_t>(chunks));
  std::vector<std::int64_t> moved(kRoutes);
  for (int chunk = 0; chunk < chunks; ++chunk) moved[static_cast<std::size_t>(route_of(chunk))] += bytes;
  const std::vector<std::int64_t> counters = engine.counters();
  CHECK(std::equal(moved.begin(), moved.end(), counters.begin()));
  CHECK((counters.back() != 0) == (moved[static_cast<std::size_t>(Route::ring)] != 0));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<char>(result[i] - 1 - source[i]);
  return result;  // zeros if all is right
}

bool right(const Bytes& bytes) {
  for (char byte : bytes) {
    if (byte != 0) return false;
  }
  return true;
}

TEST(chunks_go_through_every_route) {
  for (Route route : {Route::direct, Route::ring, Route::shared}) {
    for (std::int64_t bytes : {1, 4095, 4096, 4097, 50000}) {
      for (int depth : {1, 2, 3}) CHECK(right(streamed({route}, bytes, 9, depth, 0)));
    }
  }
}

TEST(expanded_and_strided_rows_go_directly) {
  EngineOptions options;
  Engine engine(make_host_driver(options.events()), options);
  const Bytes host = numbered(4096);
  for (const Layout& layout : kLayouts) {
    Bytes slot(1024, 'x');
    auto command = std::make_shared<Command>();
    command->copies.push_back(
        {make_copy(const_cast<char*>(host.data()), slot.data(), layout.item, static_cast<int>(layout.sizes.size()),
                   layout.sizes.data(), layout.strides.data()),
         Route::direct});
    const auto bytes = static_cast<std::size_t>(command->copies[0].bytes.bytes());
    engine.begin(nullptr);
    engine.fetch(command);
    CHECK(engine.acquire({event_of(0, Mark::fetched)}, 0, 1000));
    slot.resize(bytes);
    CHECK(slot == gathered(host, layout.item, layout.sizes, layout.strides));
    CHECK(engine.drain(1000));
  }
}

TEST(delayed_streams_change_nothing) {
  for (unsigned seed = 1; seed <= test::rounds(20); ++seed) {
    for (Route route : {Route::direct, Route::ring, Route::shared}) CHECK(right(streamed({route}, 9000, 12, 2, seed)));
  }
}

TEST(chunks_that_change_their_route_land_in_order) {
  for (unsigned seed = 0; seed <= test::rounds(20); ++seed) {
    CHECK(right(streamed({Route::direct, Route::ring}, 9000, 24, 3, seed)));
    CHECK(right(streamed({Route::ring, Route::direct, Route::direct, Route::shared}, 9000, 24, 2, seed)));
    CHECK(right(streamed({Route::ring, Route::direct}, 3000, 24, 3, seed)));  // small: the caller copies them
    CHECK(right(streamed({Route::ring, Route::direct, Route::shared}, 3000, 24, 3, seed)));
  }
}

TEST(a_missing_edge_is_seen) {
  for (Missing missing : {Missing::fetched, Missing::stored}) {
    bool seen = false;
    for (unsigned seed = 1; seed <= 50 && !seen; ++seed)
      seen = !right(streamed({Route::direct}, 9000, 12, 2, seed, missing));
    CHECK(seen);
  }
}

MappingInfo both_ways(const void* address, std::int64_t bytes) {
  const MappingInfo info = mapping_of(address, bytes), text = mapping_by_text(address, bytes);
  CHECK(info.kind == text.kind);
  CHECK(info.writable == text.writable);
  return info;
}

TEST(a_file_that_is_cut_short_is_an_error) {
  char path[] = "/tmp/sluice_transfer_XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  const std::int64_t bytes = 64 << 10;
  CHECK(ftruncate(file, bytes) == 0);
  char* const mapped =
      static_cast<char*>(mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, file, 0));
  const MappingInfo info = both_ways(mapped + 5000, 1);
  CHECK(info.kind == Mapping::shared_file);
  CHECK(!info.writable);
  const int protection = PROT_READ | PROT_WRITE;
  char* const written =
      static_cast<char*>(mmap(nullptr, static_cast<std::size_t>(bytes), protection, MAP_SHARED, file, 0));
  CHECK(ftruncate(file, 8192) == 0);
  EngineOptions options;
  Engine engine(make_host_driver(options.events()), options);
  for (Route route : {Route::shared, Route::ring, Route::pageable}) {
    Bytes slot(static_cast<std::size_t>(bytes));
    engine.begin(nullptr);
    auto command = std::make_shared<Command>();
    const std::int64_t sizes[] = {bytes}, strides[] = {1};
    command->copies.push_back({make_copy(mapped, slot.data(), 1, 1, sizes, strides), route, info.kind});
    engine.fetch(command);
    while (!engine.acquire({event_of(0, Mark::fetched)}, 0, 100)) {
    }
    CHECK(engine.error() == "a file ended while it was read");
    CHECK(engine.drain(1000));
  }
  for (Route route : {Route::shared, Route::ring, Route::pageable}) {
    Bytes slot(static_cast<std::size_t>(bytes), 'x');
    engine.begin(nullptr);
    auto command = std::make_shared<Command>();
    const std::int64_t sizes[] = {bytes}, strides[] = {1};
    command->copies.push_back({make_copy(written, slot.data(), 1, 1, sizes, strides), route, info.kind});
    engine.store(command);
    while (!engine.wait_landed(1, 100)) {
    }
    CHECK(engine.error() == "a file ended while it was written");
    CHECK(engine.drain(1000));
  }
  CHECK(written[100] == 'x');
  engine.begin(nullptr);
  CHECK(engine.error().empty());
  munmap(written, static_cast<std::size_t>(bytes));
  munmap(mapped, static_cast<std::size_t>(bytes));
  close(file);
}

TEST(dropping_pages_of_a_file_keeps_what_was_written) {
  char path[] = "/tmp/sluice_transfer_XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  const std::size_t bytes = 1 << 16;
  const Bytes content = numbered(bytes);
  CHECK(write(file, content.data(), bytes) == static_cast<ssize_t>(bytes));
  for (int flags : {MAP_SHARED, MAP_PRIVATE}) {
    char* const mapped = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0));
    mapped[20000] = 'q';
    const MappingInfo info = both_ways(mapped, static_cast<std::int64_t>(bytes));
    CHECK(info.kind == (flags == MAP_SHARED ? Mapping::shared_file : Mapping::private_file));
    drop_behind(mapped, static_cast<std::int64_t>(bytes), info.kind);
    CHECK(mapped[20000] == 'q');
    CHECK(mapped[20001] == content[20001]);
    munmap(mapped, bytes);
  }
  close(file);
}

// Data written into a private mapping exists nowhere else, even after the mapping became read-only.
TEST(a_private_mapping_that_was_made_read_only_keeps_what_was_written) {
  char path[] = "/tmp/sluice_transfer_XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  const std::size_t bytes = 1 << 16;
  const auto size = static_cast<std::int64_t>(bytes);
  CHECK(ftruncate(file, size) == 0);
  char* const mapped = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
  mapped[20000] = 'q';
  CHECK(mprotect(mapped, bytes, PROT_READ) == 0);
  const MappingInfo info = both_ways(mapped, size);
  CHECK(info.kind == Mapping::private_file);
  CHECK(!info.writable);
  drop_behind(mapped, size, info.kind);
  CHECK(mapped[20000] == 'q');
  // The kind of a range depends on all mappings that it overlaps, not on the first.
  CHECK(mmap(mapped, bytes / 2, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == mapped);
  CHECK(both_ways(mapped, size / 2).kind == Mapping::shared_file);
  CHECK(both_ways(mapped, size).kind == Mapping::private_file);
  const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  CHECK(mmap(mapped + bytes / 2, bytes / 2, PROT_READ | PROT_WRITE, anonymous, -1, 0) == mapped + bytes / 2);
  mapped[40000] = 'r';
  const MappingInfo mixed = both_ways(mapped, size);
  CHECK(mixed.kind == Mapping::private_file);
  CHECK(!mixed.writable);
  drop_behind(mapped, size, mixed.kind);
  CHECK(mapped[40000] == 'r');
  CHECK(both_ways(mapped + bytes / 2, size / 2).kind == Mapping::anonymous);
  munmap(mapped, bytes);
  close(file);
}

}  // namespace
}  // namespace sluice::transfer
