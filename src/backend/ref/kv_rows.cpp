// kv_append and kv_convert, and reading what they wrote.
#include "backend/ref/detail/kv_rows.h"

#include <vector>

#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"

namespace kvasir::backend::ref {
namespace {

// x as the layer's exact type holds it, in the form that the row has.
void append_row(const KvLayerView& kv,
                const KvRowView& row,
                KvSide which,
                std::uint32_t head,
                std::uint32_t position,
                const float* x) noexcept {
  const KvEncodedSide side = side_of(kv, which, row.is_encoded);
  const codec::KvRow to = row_at(kv, side, row.blocks, head, position);
  if (!row.is_encoded) return codec::encode_row(side.codec, x, kv.head_dim, to);
  std::vector<std::byte> exact(kv.head_dim * size_of(kv.type));
  std::vector<float> rounded(kv.head_dim);
  codec::encode_row(kv.exact_codec(), x, kv.head_dim, {{exact.data()}});
  codec::decode_row(kv.exact_codec(), {{exact.data()}}, kv.head_dim, rounded.data());
  codec::encode_row(side.codec, rounded.data(), kv.head_dim, to);
}

}  // namespace

UnpackedRows::UnpackedRows(const KvLayerView& kv,
                           const KvRowView& row,
                           KvSide which,
                           std::uint32_t head,
                           std::uint32_t begin,
                           std::uint32_t end)
    : first(begin), dim(kv.head_dim) {
  const KvEncodedSide side = side_of(kv, which, row.is_encoded);
  is_exact = !row.is_encoded;
  has_offsets = codec::has_offsets(side.codec);
  is_rotated = codec::is_rotated(side.codec);
  group = is_exact ? dim : codec::group_of(side.codec);
  n_groups = is_exact ? 0 : dim / group;
  const std::size_t n = end - begin;
  codes.resize(n * dim);
  scales.resize(n * n_groups);
  offsets.resize(n * n_groups);
  for (std::size_t i = 0; i < n; ++i) {
    const codec::KvRow from =
        row_at(kv, side, row.blocks, head, begin + static_cast<std::uint32_t>(i));
    if (is_exact) {
      codec::decode_row(side.codec, from, dim, &codes[i * dim]);
    } else {
      codec::unpack_row(side.codec, from, dim, &codes[i * dim], &scales[i * n_groups],
                        &offsets[i * n_groups]);
    }
  }
  if (kv.type == DType::bf16) {  // changes centroids alone
    for (float& code : codes) code = round_to_bf16(code);
  }
}

void kv_append(ops::Device&, const ops::KvAppendArgs& a) noexcept {
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      for (std::uint32_t h = 0; h < a.kv.n_kv_heads; ++h) {
        const std::size_t column = std::size_t{h} * a.kv.head_dim;
        append_row(a.kv, row, KvSide::keys, h, row.length + i,
                   a.k.row(row.first_token + i) + column);
        append_row(a.kv, row, KvSide::values, h, row.length + i,
                   a.v.row(row.first_token + i) + column);
      }
    }
  }
}

void kv_convert(ops::Device&, const ops::KvConvertArgs& a) noexcept {
  std::vector<float> x(a.kv.head_dim);
  for (const KvSide which : {KvSide::keys, KvSide::values}) {
    const KvEncodedSide exact = side_of(a.kv, which, false), encoded = side_of(a.kv, which, true);
    for (std::uint32_t p = a.begin; p < a.end; ++p) {
      for (std::uint32_t h = 0; h < a.kv.n_kv_heads; ++h) {
        codec::decode_row(exact.codec, row_at(a.kv, exact, a.from, h, p), a.kv.head_dim, x.data());
        codec::encode_row(encoded.codec, x.data(), a.kv.head_dim,
                          row_at(a.kv, encoded, a.to, h, p));
      }
    }
  }
}

}  // namespace kvasir::backend::ref
