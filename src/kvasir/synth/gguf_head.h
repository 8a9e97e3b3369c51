// What a GGUF file says about a model of random weights, in llama.cpp's terms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"
#include "kvasir/synth/pieces.h"
#include "kvasir/synth/vocabulary.h"
#include "model/decoder_config.h"

namespace kvasir::synth {

// llama.cpp's name of a family that its plain architectures hold; unsupported for others.
Result<std::string> gguf_architecture_of(const json::Value& config);

// matrices: the type of most tensors.
formats::GgufMetadata gguf_metadata(const std::string& architecture,
                                    const std::string& name,
                                    codec::WeightType matrices,
                                    const json::Value& config,
                                    const model::DecoderConfig& decoder,
                                    const std::optional<Vocabulary>& vocabulary);

// Divisors of the rotary frequencies, where the model scales them; else empty.
std::vector<float> rope_divisors(const json::Value& config, const model::DecoderConfig& decoder);

// The file's tensors, one a piece.
Result<std::vector<formats::NewTensor>> gguf_tensors_of(const std::string& architecture,
                                                        const std::vector<Piece>& pieces);

}  // namespace kvasir::synth
