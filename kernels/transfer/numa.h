// Which memory and which cores are near a device. Where the machine does not say, everything is near.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::transfer {

// "0-3,8,10-11" as the kernel writes it.
std::vector<int> parse_cpu_list(const std::string& text);

// The node of a PCI device ("0000:17:00.0"); -1 where it is not known or there is only one.
int node_of_pci_device(const std::string& bus_id);

// Cores that this process may use: all, or those of a node. Never empty.
std::vector<int> usable_cpus(int node);

// Prefers a node for memory that is not touched yet; keeps the calling thread to a node's cores.
void prefer_node(void* address, std::size_t bytes, int node);
void bind_thread(int node);

}  // namespace sluice::transfer
