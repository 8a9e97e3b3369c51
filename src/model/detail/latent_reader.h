// What families of latent attention (DeepSeek-V3 and its kin) read alike from config.json.
#pragma once

#include "model/decoder_config.h"
#include "model/detail/config_reader.h"

namespace kvasir::model {

// Latent attention in every layer; dense layers, then experts with DeepSeek-V3's routing.
DecoderConfig read_latent_decoder(const ConfigReader& config);

// A sparse index on every layer: its sizes, and which layers share the choice of one before.
void read_indexes(const ConfigReader& config, DecoderConfig& decoder);

}  // namespace kvasir::model
