// From what a model wants to what a file holds: the stored form of each tensor, and its random
// elements written block by block.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "codec/weight_type.h"
#include "formats/model_files.h"
#include "formats/tensor_file.h"
#include "kvasir/synth/random_rows.h"

namespace kvasir::synth {

struct StoredTypes {
  codec::WeightType matrix;  // of matrices whose rows are whole blocks and groups
  codec::WeightType dense;   // of others
  codec::WeightType vector;
};

struct Piece {
  formats::WantedTensor wanted;
  codec::WeightType type;
  std::uint64_t n_rows = 1, n_in = 0;  // rows of the last axis; a vector is one
  std::size_t codes = 0;               // its tensors in the file: the next two are scales, biases

  bool is_planar() const noexcept {
    return codec::info(type).scale_plane != codec::ScalePlane::none;
  }
  std::uint64_t n_elements() const noexcept { return n_rows * n_in; }
  std::size_t row_bytes() const noexcept {
    return n_in / codec::info(type).block * codec::info(type).block_bytes;
  }
  std::size_t scale_row_bytes() const noexcept {  // of scales, and as many of biases; bf16
    return is_planar() ? n_in / codec::info(type).group * 2 : 0;
  }
};

// Pieces in the order of `wanted`, each with the place of its first tensor in a file that holds
// them all in that order.
std::vector<Piece> make_pieces(std::vector<formats::WantedTensor> wanted, const StoredTypes& types);

// The file's tensors, under canonical names.
std::vector<formats::NewTensor> safetensors_of(const std::vector<Piece>& pieces);

// All of the file's data.
Status write_pieces(formats::TensorFile& file,
                    const std::vector<Piece>& pieces,
                    std::uint64_t seed,
                    int n_threads,
                    const ProgressSink& progress);

}  // namespace kvasir::synth
