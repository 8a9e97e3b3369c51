// The token of each row of scores: its highest, or a draw. Two stages: blocks take chunks of a row,
// a warp joins what they found. Nothing depends on how a row is cut.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

enum class PickKind : std::uint32_t { none, highest, drawn };
struct PickRow {  // as kvasir::PickRow
  std::uint64_t seed, position;
  float scale;
  PickKind kind;
};

constexpr std::uint32_t kPickChunk = 4096;  // scores of a block
struct PickPeak {                           // of a chunk
  float max;
  std::uint32_t token;      // the lowest that has it
  std::uint32_t is_broken;  // a NaN or an infinity is there
  std::uint32_t pad;
};
struct PickDraw {  // of a chunk
  double score;
  std::uint64_t token;
};

struct PickScoresArgs {
  ConstMat scores;
  const PickRow* rows;    // [n_rows]
  PickPeak* peaks;        // [n_rows, n_chunks]
  PickDraw* draws;        // [n_rows, n_chunks] or null: no row is drawn
  std::uint32_t* picked;  // [n_rows]
  std::uint32_t n_chunks;
  std::uint32_t pad;
};
constexpr std::uint32_t pick_chunks(std::uint32_t n_scores) {
  return (n_scores + kPickChunk - 1) / kPickChunk;
}
void launch_pick(Queue& queue, const PickScoresArgs& args);

}  // namespace kvasir::backend::cuda
