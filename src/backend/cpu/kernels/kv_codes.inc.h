// Codes of encoded KV rows as the numbers that products take (docs/numerics.md), in the two
// arrangements of attention: keys side by side in lanes, and elements of a row side by side.

namespace kvasir::backend::cpu {
namespace {

// Rows of one plane at the positions of a tile, one after the other. Those that no query sees hold
// anything.
struct TileRows {
  const std::uint8_t* first;
  std::size_t stride;  // bytes
  const std::uint8_t* at(std::size_t key) const { return first + key * stride; }
};

// In place where a block holds whole tiles, else copied to `room`.
inline TileRows find_rows(const AttentionJob& job,
                          const AttentionItem& item,
                          const std::uint8_t* plane,
                          std::size_t row_bytes,
                          std::uint32_t tile,
                          KeyRange range,
                          std::uint8_t* room) {
  const auto place = [&](std::uint32_t position) {
    const std::size_t block = item.blocks[position / job.block_tokens];
    return plane + ((block * job.n_kv_heads + item.kv_head) * job.block_tokens +
                    position % job.block_tokens) *
                       row_bytes;
  };
  if (job.block_tokens >= kTileKeys) return {place(tile), row_bytes};
  for (std::uint32_t j = 0; j < kTileKeys; j += job.block_tokens) {
    const std::uint32_t end = tile + j + job.block_tokens;
    if (end <= range.begin || tile + j >= range.end) continue;
    __builtin_memcpy(room + j * row_bytes, place(tile + j), job.block_tokens * row_bytes);
  }
  return {room, row_bytes};
}

// Keys' codes with keys in lanes: words[w][key] is dword w of a key's row.
inline void transpose_words(const TileRows& rows, std::size_t n_words, std::uint32_t* words) {
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    for (std::size_t word = 0; word < n_words; word += 16) {
      U32x16 in[16], out[16];
      for (std::uint32_t i = 0; i < 16; ++i) in[i] = row_dwords(rows.at(j + i), word, n_words);
      transpose(in, out);
      for (std::size_t i = 0; i < 16 && word + i < n_words; ++i)
        store(reinterpret_cast<float*>(words + (word + i) * kTileKeys + j), from_bits(out[i]));
    }
  }
}

// Providers of keys' codes: at(place(d), v) is element d of keys 16 v … 16 v + 15 of the tile.
struct TileKeyCodes {  // unpacked to f32 [d][key]
  const float* keys;
  const float* place(std::uint32_t d) const { return keys + std::size_t{d} * kTileKeys; }
  F32x16 at(const float* place, std::uint32_t v) const { return load(place + 16 * v); }
};

struct WordPlace {
  const std::uint32_t* words;
  U32x16 shift;
};
struct NarrowKeyCodes {  // 2 or 4 bits
  NarrowKeyCodes(const EncodedSide& side, const std::uint32_t* at_words)
      : words(at_words), bits(side.bits), table(load(side.table)) {}
  WordPlace place(std::uint32_t d) const {
    return {words + std::size_t{d * bits / 32} * kTileKeys, set1_u(d * bits % 32)};
  }
  F32x16 at(const WordPlace& place, std::uint32_t v) const {
    return lookup16(table, shift_right_by(load_u(place.words + 16 * v), place.shift));
  }
  const std::uint32_t* words;
  std::uint32_t bits;
  F32x16 table;
};

struct FivePlace {
  const std::uint32_t* words;
  U32x16 shift, next_shift;
  bool straddles;
};
struct FiveKeyCodes {  // 5 bits, some across two words
  FiveKeyCodes(const EncodedSide& side, const std::uint32_t* at_words)
      : words(at_words), low(load(side.table)), high(load(side.table + 16)) {}
  FivePlace place(std::uint32_t d) const {
    const std::uint32_t bit = d * 5, shift = bit % 32;
    return {words + std::size_t{bit / 32} * kTileKeys, set1_u(shift), set1_u(32 - shift),
            shift > 27};
  }
  F32x16 at(const FivePlace& place, std::uint32_t v) const {
    const std::uint32_t* const word = place.words + 16 * v;
    U32x16 code = shift_right_by(load_u(word), place.shift);
    if (place.straddles)
      code = or_u(code, shift_left_by(load_u(word + kTileKeys), place.next_shift));
    return lookup32(low, high, code);
  }
  const std::uint32_t* words;
  F32x16 low, high;
};

template <bool kSigned>
struct ByteKeyCodes {
  ByteKeyCodes(const EncodedSide&, const std::uint32_t* at_words) : words(at_words) {}
  WordPlace place(std::uint32_t d) const {
    return {words + std::size_t{d / 4} * kTileKeys,
            kSigned ? set1_u(24 - d % 4 * 8) : byte_pick(d % 4)};
  }
  F32x16 at(const WordPlace& place, std::uint32_t v) const {
    const U32x16 word = load_u(place.words + 16 * v);
    if constexpr (kSigned) {
      return to_f32(shift_right_signed<24>(shift_left_by(word, place.shift)));
    } else {
      return to_f32(take_byte(word, place.shift));
    }
  }
  const std::uint32_t* words;
};

// f(provider) with the keys' codes still packed.
template <class F>
inline void with_key_codes(const EncodedSide& side, const std::uint32_t* words, F&& f) {
  switch (side.code) {
    case KvCode::narrow:
      return f(NarrowKeyCodes(side, words));
    case KvCode::five:
      return f(FiveKeyCodes(side, words));
    case KvCode::byte:
      return f(ByteKeyCodes<false>(side, words));
    default:
      return f(ByteKeyCodes<true>(side, words));
  }
}

// Providers of values' codes: at(key, n) is elements d + 16 n … + 15 of that key's row, n < N. In
// pairs: vectors 2 m and 2 m + 1 hold the even and the odd ones of 32.
template <int N>
struct TileValueCodes {  // unpacked to f32 [key][d]
  static constexpr bool kInPairs = false;
  TileValueCodes(const float* values, std::size_t row_stride, std::size_t d)
      : at_d(values + d), stride(row_stride) {}
  F32x16 at(std::uint32_t key, int n) const { return load(at_d + key * stride + 16 * n); }
  const float* at_d;
  std::size_t stride;
};

template <int N>
struct ByteValueCodes {
  static constexpr bool kInPairs = false;
  ByteValueCodes(const EncodedSide&, const TileRows& tile_rows, std::size_t at_d)
      : rows(tile_rows), d(at_d) {}
  F32x16 at(std::uint32_t key, int n) const {
    return load_bytes_unsigned(rows.at(key) + d + 16 * static_cast<std::size_t>(n));
  }
  TileRows rows;
  std::size_t d;
};

// Consecutive runs of a row spread over lanes, `bits` to each of at most 8: sixteen lanes' bits lie
// in at most 16 bytes, which are read within the row.
template <int kRuns>
struct SpreadRuns {
  SpreadRuns(const TileRows& tile_rows, std::uint32_t begin, std::uint32_t bits, std::uint32_t last)
      : rows(tile_rows) {
    std::uint32_t shifts[16], picks[16];
    for (std::uint32_t i = 0; i < 16; ++i) shifts[i] = i * bits % 8;
    shift = load_u(shifts);
    for (int run = 0; run < kRuns; ++run, begin += 2 * bits) {
      const std::uint32_t from = begin < last ? begin : last;
      for (std::uint32_t i = 0; i < 16; ++i) {
        const std::uint32_t byte = begin - from + i * bits / 8;
        picks[i] = 0x80800000u | ((byte + 1) & 15u) << 8 | byte;
      }
      window[run] = from;
      pick[run] = load_u(picks);
    }
  }
  U32x16 at(std::uint32_t key, int run) const {
    return spread_codes(rows.at(key) + window[run], pick[run], shift);
  }
  TileRows rows;
  U32x16 shift, pick[kRuns];
  std::size_t window[kRuns];
};

template <int N>
struct FiveValueCodes {
  static constexpr bool kInPairs = false;
  FiveValueCodes(const EncodedSide& side, const TileRows& rows, std::size_t d)
      : runs(rows, static_cast<std::uint32_t>(d) / 8 * 5, 5, side.codes_bytes - 16),
        low(load(side.table)),
        high(load(side.table + 16)) {}
  F32x16 at(std::uint32_t key, int n) const { return lookup32(low, high, runs.at(key, n)); }
  SpreadRuns<N> runs;
  F32x16 low, high;
};

template <int N>
struct NarrowValueCodes {  // 2 or 3 bits, two codes to a lane
  static constexpr bool kInPairs = true;
  NarrowValueCodes(const EncodedSide& side, const TileRows& rows, std::size_t d)
      : runs(rows,
             static_cast<std::uint32_t>(d) / 8 * side.bits,
             2 * side.bits,
             side.codes_bytes - 16),
        table(load(side.table)),
        odd(set1_u(side.bits)) {}
  F32x16 at(std::uint32_t key, int n) const {
    const U32x16 pairs = runs.at(key, n / 2);
    return lookup16(table, n % 2 == 0 ? pairs : shift_right_by(pairs, odd));
  }
  SpreadRuns<N / 2> runs;
  F32x16 table;
  U32x16 odd;
};

template <int N>
struct NibbleValueCodes {
  static constexpr bool kInPairs = true;
  NibbleValueCodes(const EncodedSide& side, const TileRows& tile_rows, std::size_t d)
      : rows(tile_rows), table(load(side.table)), at_d(d / 2) {}
  F32x16 at(std::uint32_t key, int n) const {
    const U32x16 pairs = load_bytes_u(rows.at(key) + at_d + static_cast<std::size_t>(n / 2) * 16);
    return lookup16(table, n % 2 == 0 ? pairs : shift_right<4>(pairs));
  }
  TileRows rows;
  F32x16 table;
  std::size_t at_d;
};

template <int N>
struct WideValueCodes {
  static constexpr bool kInPairs = false;
  WideValueCodes(const EncodedSide& side, const TileRows& tile_rows, std::size_t at_d)
      : rows(tile_rows), table(side.table), d(at_d) {}
  F32x16 at(std::uint32_t key, int n) const {
    const U32x16 codes = load_bytes_u(rows.at(key) + d + 16 * static_cast<std::size_t>(n));
    return lookup256(table, codes);
  }
  TileRows rows;
  const float* table;
  std::size_t d;
};

template <int N>
struct WordValueCodes {  // 8 bits, values of bf16
  static constexpr bool kInPairs = true;
  WordValueCodes(const EncodedSide& side, const TileRows& tile_rows, std::size_t at_d)
      : rows(tile_rows), table(words_of(side.table)), d(at_d) {}
  F32x16 at(std::uint32_t key, int n) const {
    const U32x16 pairs =
        lookup_words(table, rows.at(key) + d + static_cast<std::size_t>(n / 2) * 32);
    return from_bits(n % 2 == 0 ? shift_left<16>(pairs) : and_u(pairs, set1_u(0xffff0000u)));
  }
  TileRows rows;
  WordTable table;
  std::size_t d;
};

// f(provider) with the values' codes still packed, of columns [d, d + 16 N).
template <int N, class F>
inline void with_value_codes(const EncodedSide& side, const TileRows& rows, std::size_t d, F&& f) {
  switch (side.code) {
    case KvCode::narrow:
      return side.bits == 4 ? f(NibbleValueCodes<N>(side, rows, d))
                            : f(NarrowValueCodes<N>(side, rows, d));
    case KvCode::five:
      return f(FiveValueCodes<N>(side, rows, d));
    case KvCode::byte:
      return f(ByteValueCodes<N>(side, rows, d));
    case KvCode::wide_bf16:
      return f(WordValueCodes<N>(side, rows, d));
    default:
      return f(WideValueCodes<N>(side, rows, d));
  }
}

template <class Values>
inline void to_order(F32x16& even, F32x16& odd) {
  if constexpr (Values::kInPairs) {
    const U32x16 a = bits(even), b = bits(odd);
    even = from_bits(interleave_low(a, b));
    odd = from_bits(interleave_high(a, b));
  }
}

inline F32x16 low_halves(U32x16 v, ScaleKind kind) {
  return kind == ScaleKind::f16 ? widen_f16(v) : from_bits(shift_left<16>(v));
}

inline float scale_of_row(const std::uint8_t* row, ScaleKind kind, std::uint32_t g) {
  float lanes_of[16];
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(row) + g;
  store(lanes_of, kind == ScaleKind::f32   ? load_n(reinterpret_cast<const float*>(row) + g, 1)
                  : kind == ScaleKind::f16 ? load_f16_n(halves, 1)
                                           : load_bf16_n(halves, 1));
  return lanes_of[0];
}

// f(w, dword w of each of sixteen rows that follow each other), rows of N dwords, N a power of two:
// halving by even and odd gives the dwords in bit-reversed order.
template <int N, class F>
inline void split_dwords(const std::uint8_t* rows, F&& f) {
  U32x16 at[N], next[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) at[i] = load_u(rows + 64 * i);
#pragma GCC unroll 3
  for (int part = N; part > 1; part /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < N / 2; ++i) {
      const int begin = i / (part / 2) * part, j = i % (part / 2);
      next[begin + j] = even_lanes(at[begin + 2 * j], at[begin + 2 * j + 1]);
      next[begin + part / 2 + j] = odd_lanes(at[begin + 2 * j], at[begin + 2 * j + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) at[i] = next[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    int word = 0;
    for (int bit = 1, low = N / 2; bit < N; bit *= 2, low /= 2) word |= i & bit ? low : 0;
    f(static_cast<std::uint32_t>(word), at[i]);
  }
}

template <class F>
inline void for_dwords(const std::uint8_t* rows, std::uint32_t row_bytes, F&& f) {
  if (row_bytes == 4) return split_dwords<1>(rows, f);
  if (row_bytes == 8) return split_dwords<2>(rows, f);
  if (row_bytes == 16) return split_dwords<4>(rows, f);
  if (row_bytes == 32) return split_dwords<8>(rows, f);
  std::uint32_t offsets[16];
  for (std::uint32_t i = 0; i < 16; ++i) offsets[i] = i * row_bytes;
  for (std::uint32_t word = 0; word < row_bytes / 4; ++word)
    f(word, gather_u(rows + 4 * word, load_u(offsets)));
}

// Of sixteen rows that follow each other: out[g][row]. Halves come in pairs, so their number is
// even.
inline void load_scales_of_16(const EncodedSide& side, const std::uint8_t* rows, float* out) {
  if (side.scale == ScaleKind::f32) {
    return for_dwords(rows, side.scales_bytes, [&](std::uint32_t g, U32x16 dwords) {
      store(out + g * kTileKeys, from_bits(dwords));
    });
  }
  for_dwords(rows, side.scales_bytes, [&](std::uint32_t word, U32x16 pair) {
    store(out + 2 * word * kTileKeys, low_halves(pair, side.scale));
    store(out + (2 * word + 1) * kTileKeys, low_halves(shift_right<16>(pair), side.scale));
  });
}

// A plane of scales as f32 [group][key].
inline void load_tile_scales(const EncodedSide& side, const TileRows& rows, float* out) {
  const bool has_pairs = side.scale == ScaleKind::f32 || side.n_groups % 2 == 0;
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    if (has_pairs) {
      load_scales_of_16(side, rows.at(j), out + j);
    } else if (side.n_groups == 1) {
      const auto* const halves = reinterpret_cast<const std::uint16_t*>(rows.at(j));
      store(out + j, side.scale == ScaleKind::f16 ? load_f16(halves) : load_bf16(halves));
    } else {
      for (std::uint32_t i = j; i < j + 16; ++i) {
        for (std::uint32_t g = 0; g < side.n_groups; ++g)
          out[g * kTileKeys + i] = scale_of_row(rows.at(i), side.scale, g);
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
