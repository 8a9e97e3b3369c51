// What every form of the matrix product shares: scales as f32 lanes, weights asked for ahead of
// their use, and finished sums → outputs.

namespace kvasir::backend::cpu {
namespace {

// f<I>() for I in [kBegin, kEnd), written out.
template <int kBegin, int kEnd, class F>
inline __attribute__((always_inline)) void unrolled(F&& f) {
  if constexpr (kEnd - kBegin == 1) {
    f.template operator()<kBegin>();
  } else {
    unrolled<kBegin, (kBegin + kEnd) / 2>(f);
    unrolled<(kBegin + kEnd) / 2, kEnd>(f);
  }
}

inline F32x16 load_scales(ScaleKind kind, const std::uint8_t* p, int half) {
  if (kind == ScaleKind::f16)
    return load_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * half);
  if (kind == ScaleKind::bf16)
    return load_bf16(reinterpret_cast<const std::uint16_t*>(p) + 16 * half);
  return load(reinterpret_cast<const float*>(p) + 16 * half);
}

// Of a group, for products.
inline F32x16 load_biases(const PackedLayout& w, const std::uint8_t* group, int half) {
  const F32x16 bias = load_scales(w.scale, group + w.scales_bytes, half);
  if (w.code_shift == 0) return bias;
  return fma(set1(w.code_shift), load_scales(w.scale, group, half), bias);
}

// A stream of weights, a line at a time: what comes soon into L1, what comes later into L2, which
// has more lines on their way from memory than L1 can wait for.
constexpr std::size_t kSoonBytes = 1536, kLaterBytes = 9216;

inline __attribute__((always_inline)) void ask_ahead(const std::uint8_t* line) {
  prefetch(line + kSoonBytes);
  prefetch_beyond_l1(line + kLaterBytes);
}

// Lines of the weights that come next, asked for a few at a time.
struct LinesAhead {
  const std::uint8_t *at, *end;
  inline __attribute__((always_inline)) void ask(std::uint32_t n) {
    for (; n > 0 && at < end; --n, at += 64) prefetch(at);
  }
  // Into L2: L1 is full of what is used now.
  inline __attribute__((always_inline)) void ask_beyond_l1(std::uint32_t n) {
    for (; n > 0 && at < end; --n, at += 64) prefetch_beyond_l1(at);
  }
};

inline void store_outputs(
    const LinearJob& job, std::uint32_t panel, std::uint32_t row, F32x16 low, F32x16 high) {
  const F32x16 halves[2] = {low, high};
  for (std::uint32_t h = 0; h < 2; ++h) {
    const std::uint32_t begin = panel * kPanel + 16 * h;
    if (begin >= job.n_out) return;
    const std::uint32_t left = job.n_out - begin, n = left < 16 ? left : 16;
    const F32x16 sum = job.bias ? add(halves[h], load_n(job.bias + begin, n)) : halves[h];
    store_n(job.out + row * job.out_stride + begin, sum, n);
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
