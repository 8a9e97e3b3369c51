#include "cache/cache_namespace.h"

#include <utility>

#include "json/json.h"

namespace kvasir::cache {

std::string cache_namespace(const NamespaceParts& parts) {
  json::Value layers;
  if (parts.layers) {
    json::Array list;
    for (const NamespaceParts::Layer& layer : *parts.layers)
      list.emplace_back(json::Array{layer.index, layer.bits, layer.group_size});
    layers = std::move(list);
  }
  return json::write(json::Array{"kvasir-kv-v1", parts.model_fp, parts.numerics_id, parts.cache_key,
                                 std::move(layers), parts.adapter_ns, parts.media_ns,
                                 parts.method_ns});
}

}  // namespace kvasir::cache
