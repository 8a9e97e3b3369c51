// Host values of a step on the device: spans as they are, rows with their block tables. A span that
// was staged before in the step is found by its address; what stands there now decides.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cuda/detail/cuda_ops.h"

namespace kvasir::backend::cuda {
namespace {

std::uint32_t n_blocks_of(const KvRowView& row, std::uint32_t block_tokens) noexcept {
  return (row.length + row.n_new + block_tokens - 1) / block_tokens;
}
// Ids that a row's table has room for: it may grow a while without moving those behind it.
std::size_t table_size(const KvRowView& row, std::uint32_t block_tokens) noexcept {
  constexpr std::uint32_t kLeast = 16;
  return std::bit_ceil(std::max(n_blocks_of(row, block_tokens), kLeast));
}

// [KvRow of each row][row of each token][block tables]
struct RowsLayout {
  std::size_t tokens_at, tables_at, size_bytes;
};

RowsLayout layout_of(std::span<const KvRowView> rows,
                     std::uint32_t block_tokens,
                     std::size_t n_tokens) noexcept {
  RowsLayout out{};
  out.tokens_at = rows.size() * sizeof(KvRow);
  out.tables_at = out.tokens_at + (n_tokens + 1) / 2 * 2 * sizeof(std::uint32_t);
  out.size_bytes = out.tables_at;
  for (const KvRowView& row : rows)
    out.size_bytes += table_size(row, block_tokens) * sizeof(std::uint32_t);
  return out;
}

void fill(std::span<const KvRowView> rows,
          std::uint32_t block_tokens,
          const RowsLayout& layout,
          const Staging::Place& place) noexcept {
  auto* const staged = reinterpret_cast<KvRow*>(place.host);
  auto* const row_of_token = reinterpret_cast<std::uint32_t*>(place.host + layout.tokens_at);
  std::size_t at = layout.tables_at;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KvRowView& row = rows[i];
    staged[i] = {reinterpret_cast<const std::uint32_t*>(place.device + at),
                 row.first_position,
                 row.length,
                 row.n_new,
                 row.first_token,
                 row.is_encoded ? 1u : 0u,
                 0u};
    std::memcpy(place.host + at, row.blocks,
                n_blocks_of(row, block_tokens) * sizeof(std::uint32_t));
    at += table_size(row, block_tokens) * sizeof(std::uint32_t);
    for (std::uint32_t t = 0; t < row.n_new; ++t)
      row_of_token[row.first_token + t] = static_cast<std::uint32_t>(i);
  }
}

// Whether what was staged is of these rows.
bool holds(std::span<const KvRowView> rows,
           std::uint32_t block_tokens,
           const Staging::Place& place) noexcept {
  const auto* const staged = reinterpret_cast<const KvRow*>(place.host);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KvRowView& row = rows[i];
    const KvRow& was = staged[i];
    if (was.first_position != row.first_position || was.length != row.length ||
        was.n_new != row.n_new || was.first_token != row.first_token ||
        (was.is_encoded != 0) != row.is_encoded)
      return false;
    const auto* const table =
        place.host + (reinterpret_cast<const std::byte*>(was.blocks) - place.device);
    if (std::memcmp(table, row.blocks, n_blocks_of(row, block_tokens) * sizeof(std::uint32_t)))
      return false;
  }
  return true;
}

}  // namespace

const std::byte* CudaDevice::stage_bytes(std::span<const std::byte> bytes) noexcept {
  Staging::Place place = reserve(bytes.size(), bytes.data(), bytes.size());
  if (!place.is_new && std::memcmp(place.host, bytes.data(), bytes.size()) != 0) {
    staging_.forget(bytes.data(), bytes.size());
    place = reserve(bytes.size(), bytes.data(), bytes.size());
  }
  if (place.is_new) {
    std::memcpy(place.host, bytes.data(), bytes.size());
    if (is_eager()) staging_.upload(stream_);
  }
  return place.device;
}

CudaDevice::StagedRows CudaDevice::rows_of(std::span<const KvRowView> rows,
                                           std::uint32_t block_tokens,
                                           std::size_t n_tokens) noexcept {
  const RowsLayout layout = layout_of(rows, block_tokens, n_tokens);
  Staging::Place place = reserve(layout.size_bytes, rows.data(), rows.size_bytes());
  if (!place.is_new && !holds(rows, block_tokens, place)) {
    staging_.forget(rows.data(), rows.size_bytes());
    place = reserve(layout.size_bytes, rows.data(), rows.size_bytes());
  }
  if (place.is_new) {
    fill(rows, block_tokens, layout, place);
    if (is_eager()) staging_.upload(stream_);
  }
  StagedRows out{.view = {reinterpret_cast<const KvRow*>(place.device),
                          reinterpret_cast<const std::uint32_t*>(place.device + layout.tokens_at)},
                 .n_rows = static_cast<std::uint32_t>(rows.size()),
                 .longest = 0,
                 .most_new = 0,
                 .any_encoded = false,
                 .all_encoded = true};
  for (const KvRowView& row : rows) {
    out.longest = std::max(out.longest, row.length + row.n_new);
    out.most_new = std::max(out.most_new, row.n_new);
    out.any_encoded |= row.is_encoded;
    out.all_encoded &= row.is_encoded;
  }
  return out;
}

}  // namespace kvasir::backend::cuda
