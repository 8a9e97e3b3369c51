// The namespace of shared KV state (KV-42): states whose namespaces differ in any element are never
// shared. Built once a request from identities that others compute. Plain values, no thread rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvasir::cache {

struct NamespaceParts {
  struct Layer {
    std::uint32_t index = 0;  // in the KV list
    std::uint32_t bits = 0;
    std::uint32_t group_size = 0;
  };
  std::string model_fp;                      // CACHE-32
  std::string numerics_id;                   // Device::numerics_id
  std::string cache_key;                     // KvScheme::cache_key
  std::optional<std::vector<Layer>> layers;  // of a per-layer scheme, else none
  std::string adapter_ns;
  std::string media_ns;
  std::string method_ns;
};

// Canonical JSON, no spaces:
// ["kvasir-kv-v1",model_fp,numerics_id,cache_key,layers|null,adapter_ns,media_ns,method_ns].
std::string cache_namespace(const NamespaceParts& parts);

}  // namespace kvasir::cache
