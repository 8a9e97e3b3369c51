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

// Keys' codes with keys in lanes: words[w][key] is dword w of a key's row.
inline void transpose_words(const TileRows& rows, std::size_t n_words, std::uint32_t* words) {
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    const auto put = [&](std::size_t word, U32x16 v) {
      store(reinterpret_cast<float*>(words + word * kTileKeys + j), from_bits(v));
    };
    if (n_words == 8) {  // two rows a register: fewer shuffles
      split_dwords<8>(rows.at(j), put);
      continue;
    }
    for (std::size_t word = 0; word < n_words; word += 16) {
      U32x16 in[16], out[16];
      for (std::uint32_t i = 0; i < 16; ++i) in[i] = row_dwords(rows.at(j + i), word, n_words);
      transpose(in, out);
      for (std::size_t i = 0; i < 16 && word + i < n_words; ++i) put(word + i, out[i]);
    }
  }
}

// Providers of keys' codes: at<I>(step(begin), v) is element begin + I, I < kStep, of keys 16 v …
// 16 v + 15 of the tile. I is constant so that shifts are.
struct TileKeyCodes {  // unpacked to f32 [d][key]
  const float* keys;
  const float* step(std::uint32_t begin) const { return keys + std::size_t{begin} * kTileKeys; }
  template <int I>
  F32x16 at(const float* step, std::uint32_t v) const {
    return load(step + I * kTileKeys + 16 * v);
  }
};

template <int kBits>
struct PackedKeyCodes {  // up to 5 bits, some across two words
  PackedKeyCodes(const EncodedSide& side, const std::uint32_t* at_words)
      : words(at_words), low(load(side.table)), high(low) {
    if constexpr (kBits == 5) high = load(side.table + 16);
    if constexpr (kBits == 2) {  // an index of four bits is two codes: a table for the second
      float second[16];
      for (int i = 0; i < 16; ++i) second[i] = side.table[i / 4];
      high = load(second);
    }
  }
  const std::uint32_t* step(std::uint32_t begin) const {
    return words + std::size_t{begin / kStep} * kBits * kTileKeys;
  }
  template <int I>
  F32x16 at(const std::uint32_t* step, std::uint32_t v) const {
    constexpr bool kIsSecond = kBits == 2 && I % 2 == 1;
    constexpr int kBit = (kIsSecond ? I - 1 : I) * kBits, kShift = kBit % 32;
    const std::uint32_t* const word = step + kBit / 32 * kTileKeys + 16 * v;
    U32x16 code = load_u(word);
    if constexpr (kShift > 0) code = shift_right<kShift>(code);
    if constexpr (kShift + kBits > 32)
      code = or_u(code, shift_left<32 - kShift>(load_u(word + kTileKeys)));
    if constexpr (kBits == 5) return lookup32(low, high, code);
    return lookup16(kIsSecond ? high : low, code);
  }
  const std::uint32_t* words;
  F32x16 low, high;
};

enum class ByteKind { integer, signed_integer, centroid };
template <ByteKind kKind>
struct ByteKeyCodes {
  ByteKeyCodes(const EncodedSide& side, const std::uint32_t* at_words)
      : words(at_words), table(side.table) {}
  const std::uint32_t* step(std::uint32_t begin) const {
    return words + std::size_t{begin / 4} * kTileKeys;
  }
  template <int I>
  F32x16 at(const std::uint32_t* step, std::uint32_t v) const {
    const U32x16 word = load_u(step + I / 4 * kTileKeys + 16 * v);
    if constexpr (kKind == ByteKind::signed_integer) {
      if constexpr (I % 4 == 3) return to_f32(shift_right_signed<24>(word));
      return to_f32(shift_right_signed<24>(shift_left<24 - I % 4 * 8>(word)));
    }
    const U32x16 code = take_byte(word, byte_pick(I % 4));
    return kKind == ByteKind::integer ? to_f32(code) : lookup256(table, code);
  }
  const std::uint32_t* words;
  const float* table;
};

// f(provider) with the keys' codes still packed.
template <class F>
inline void with_key_codes(const EncodedSide& side, const std::uint32_t* words, F&& f) {
  switch (side.code) {
    case KvCode::narrow:
      if (side.bits == 2) return f(PackedKeyCodes<2>(side, words));
      if (side.bits == 3) return f(PackedKeyCodes<3>(side, words));
      return f(PackedKeyCodes<4>(side, words));
    case KvCode::five:
      return f(PackedKeyCodes<5>(side, words));
    case KvCode::byte:
      return f(ByteKeyCodes<ByteKind::integer>(side, words));
    case KvCode::signed_byte:
      return f(ByteKeyCodes<ByteKind::signed_integer>(side, words));
    default:
      return f(ByteKeyCodes<ByteKind::centroid>(side, words));
  }
}

// Providers of values' codes: at(key, n) is elements d + 16 n … + 15 of that key's row, n < N,
// where lanes hold one element each. Of 2 to a lane vectors 2 m and 2 m + 1 hold the even and the
// odd ones of 32; of 4, vector n holds every fourth one from the nth on.
template <int N>
struct TileValueCodes {  // unpacked to f32 [key][d]
  static constexpr int kPerLane = 1;
  TileValueCodes(const float* values, std::size_t row_stride, std::size_t d)
      : at_d(values + d), stride(row_stride) {}
  F32x16 at(std::uint32_t key, int n) const { return load(at_d + key * stride + 16 * n); }
  const float* at_d;
  std::size_t stride;
};

template <int N>
struct ByteValueCodes {
  static constexpr int kPerLane = 1;
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
  static constexpr int kPerLane = 1;
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
  static constexpr int kPerLane = 2;
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
  static constexpr int kPerLane = 2;
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
  static constexpr int kPerLane = 1;
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
  static constexpr int kPerLane = 2;
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

struct WholeLanes {
  using U32 = U32x16;
};

// 64 columns of codes of 2 to 5 bits, four to a lane. The lanes are a parameter because only
// instruction sets that use this have pick_bytes and load_halves_u.
template <int kBits, class TheLanes = WholeLanes>
struct QuadValueCodes {
  using Lanes = typename TheLanes::U32;
  static constexpr int kPerLane = 4;
  static constexpr int kDwords = 2 * kBits;  // of 64 codes

  QuadValueCodes(const EncodedSide& side, const TileRows& tile_rows, std::size_t d)
      : rows(tile_rows), at_d(d / 8 * kBits), low(load(side.table)), high(low) {
    if constexpr (kBits == 5) high = load(side.table + 16);
    if constexpr (kBits == 2) {  // an index of four bits is two codes
      float second[16];
      for (int i = 0; i < 16; ++i) second[i] = side.table[i / 4];
      high = load(second);
    }
    if constexpr (kBits % 2 == 1) find_places();
  }

  // Lane i has codes 4 i … 4 i + 3, the first lowest: 4 lanes of each 16 bytes get the dwords in
  // which theirs are, each lane then its bytes of these.
  void find_places() {
    std::uint32_t from[16], bytes[16], bit[16];
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t first = i / 4 * 2 * kBits / 4, byte = i * kBits / 2 - 4 * first;
      const std::uint32_t dword = first + i % 4;
      from[i] = dword < kDwords ? dword : kDwords - 1;
      bytes[i] = (byte + 3) << 24 | (byte + 2) << 16 | (byte + 1) << 8 | byte;
      bit[i] = i % 2 * 4;
    }
    place = load_u(from), pick = load_u(bytes), shift = load_u(bit);
  }

  // Tables in registers: as operands in memory each would be read for each vector.
  void pin() {
    low = from_bits(pinned(Lanes(bits(low))));
    high = from_bits(pinned(Lanes(bits(high))));
  }

  Lanes quads(std::uint32_t key) const {
    const std::uint8_t* const row = rows.at(key) + at_d;
    if constexpr (kBits == 2) return load_bytes_u(row);
    if constexpr (kBits == 4) return load_halves_u(Lanes{}, row);
    if constexpr (kBits % 2 == 1) {
      const Lanes dwords = bits(load_n(reinterpret_cast<const float*>(row), kDwords));
      return shift_right_by(pick_bytes(bits(lookup16(from_bits(dwords), place)), pick), shift);
    }
  }
  template <int N>
  F32x16 nth(Lanes codes) const {
    constexpr bool kIsSecond = kBits == 2 && N % 2 == 1;
    constexpr int kShift = (kIsSecond ? N - 1 : N) * kBits;
    if constexpr (kShift > 0) codes = shift_right<kShift>(codes);
    if constexpr (kBits == 5) return lookup32(low, high, codes);
    return lookup16(kIsSecond ? high : low, codes);
  }
  F32x16 at(std::uint32_t key, int n) const {
    const Lanes codes = quads(key);
    return n == 0 ? nth<0>(codes) : n == 1 ? nth<1>(codes) : n == 2 ? nth<2>(codes) : nth<3>(codes);
  }

  TileRows rows;
  std::size_t at_d;
  F32x16 low, high;
  Lanes place, pick, shift;
};

// f(provider) with the values' codes still packed, of columns [d, d + 16 N).
template <int N, class F>
inline void with_value_codes(const EncodedSide& side, const TileRows& rows, std::size_t d, F&& f) {
  if constexpr (N == 4) {
    if (side.code == KvCode::five) return f(QuadValueCodes<5>(side, rows, d));
    if (side.code == KvCode::narrow) {
      if (side.bits == 2) return f(QuadValueCodes<2>(side, rows, d));
      if (side.bits == 3) return f(QuadValueCodes<3>(side, rows, d));
      return f(QuadValueCodes<4>(side, rows, d));
    }
  }
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

inline void in_turn(F32x16& first, F32x16& second) {
  const U32x16 a = bits(first), b = bits(second);
  first = from_bits(interleave_low(a, b));
  second = from_bits(interleave_high(a, b));
}

// Vectors as the provider gives them → columns in order.
template <class Values, int N>
inline void to_order(F32x16 (&v)[N]) {
  if constexpr (Values::kPerLane == 2) {
#pragma GCC unroll 2
    for (int n = 0; n < N; n += 2) in_turn(v[n], v[n + 1]);
  }
  if constexpr (Values::kPerLane == 4) {
    in_turn(v[0], v[2]);  // every other one of columns 0 … 31; of 32 … 63
    in_turn(v[1], v[3]);
    in_turn(v[0], v[1]);
    in_turn(v[2], v[3]);
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
