#include "kernels/transfer/numa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sluice::transfer {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

constexpr int kPreferred = 1;  // MPOL_PREFERRED, without libnuma's header

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    if (range.empty() || std::isdigit(static_cast<unsigned char>(range[0])) == 0) continue;
    const std::size_t dash = range.find('-');
    const int first = std::atoi(range.c_str());
    const int last = dash == std::string::npos ? first : std::atoi(range.c_str() + dash + 1);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int node_of_pci_device(const std::string& bus_id) {
  std::string lower = bus_id;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string line = first_line("/sys/bus/pci/devices/" + lower + "/numa_node");
  return line.empty() ? -1 : std::atoi(line.c_str());
}

std::vector<int> usable_cpus(int node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) CPU_SET(0, &allowed);
  std::vector<int> all, near;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) all.push_back(cpu);
  }
  if (node >= 0) {
    for (int cpu : parse_cpu_list(first_line("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist"))) {
      if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) near.push_back(cpu);
    }
  }
  return near.empty() ? all : near;
}

void prefer_node(void* address, std::size_t bytes, int node) {
  if (node < 0 || node >= 64) return;
  const unsigned long mask = 1ul << node;
  (void)syscall(SYS_mbind, address, bytes, kPreferred, &mask, 65ul, 0u);
}

void bind_thread(int node) {
  if (node < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : usable_cpus(node)) CPU_SET(cpu, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace sluice::transfer
