// The memory and the cores near a device. If the machine does not tell, everything counts as near.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::transfer {

// "0-3,8,10-11", as Linux writes it.
std::vector<int> parse_cpu_list(const std::string& text);

// The node of a PCI device ("0000:17:00.0"); -1 if it is unknown or the only one.
int node_of_pci_device(const std::string& bus_id);

// Cores that this process may use: all, or the cores of a node. Never empty.
std::vector<int> usable_cpus(int node);

// Prefers a node for memory that is not touched yet; binds the calling thread to a node's cores.
void prefer_node(void* address, std::size_t bytes, int node);
void bind_thread(int node);

}  // namespace sluice::transfer
