// For the fuzz targets: a tensor that was accepted can be decoded wherever it says it has rows.
#pragma once

#include <vector>

#include "formats/detail/opened_model.h"

namespace kvasir::formats {

// Decodes the first and the last row. Returns how many it decoded.
inline std::size_t decode_ends(const StoredTensor& tensor) {
  if (!tensor.type || tensor.info.shape.empty()) return 0;
  std::uint64_t n_rows = 1;
  const std::uint64_t n_in = tensor.info.shape.back();
  for (std::size_t d = 0; d + 1 < tensor.info.shape.size(); ++d) n_rows *= tensor.info.shape[d];
  if (n_rows == 0 || n_in == 0) return 0;
  std::vector<float> row(n_in);
  view_of(tensor, 0, 1, static_cast<std::uint32_t>(n_in)).decode(0, row.data());
  view_of(tensor, n_rows - 1, 1, static_cast<std::uint32_t>(n_in)).decode(0, row.data());
  return 2;
}

}  // namespace kvasir::formats
