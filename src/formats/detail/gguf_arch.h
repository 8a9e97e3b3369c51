// What llama.cpp's architecture names mean in Hugging Face terms: model type, rope kind, tensor
// names (MOD-52).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"

namespace kvasir::formats {

struct NamePair {
  std::string_view gguf;       // "ffn_up", without "blk.N." and ".weight"
  std::string_view canonical;  // "mlp.up_proj"
};

struct GgufArch {
  std::string_view gguf;  // general.architecture
  std::string_view model_type;
  std::string_view architecture;
  // True where llama.cpp's converter permuted the q and k rows, and where the model itself rotates
  // neighbouring pairs: either way the stored rows want interleaved pairs.
  bool rope_interleaved = false;
  std::span<const NamePair> names;  // looked up before the common ones
  // Where a model has its own names outside of layers, and another name for those.
  std::span<const NamePair> root_names = {};
  std::string_view layer_root = "model.layers.";
};

// By general.architecture; "llama" with experts is mixtral. An unknown one gets its own name as
// model type, so that the list of families refuses it by that name.
GgufArch gguf_arch_of(const GgufContent& content);

GgufArch gguf_arch_named(std::string_view architecture);

// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight". Layers from n_layers on are
// prediction heads: "mtp.blk.3.…". Names without a translation stay as they are.
std::string canonical_gguf_name(const GgufArch& arch,
                                std::string_view stored,
                                std::uint64_t n_layers);

// The other way; nothing where the architecture has no name for it.
std::optional<std::string> stored_gguf_name(const GgufArch& arch, std::string_view canonical);

}  // namespace kvasir::formats
