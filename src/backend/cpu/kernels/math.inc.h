// Rows by vectors; roundings and transcendentals, a few ulp each, from the basic lane operations
// alone: equal bits on every target. Polynomials: interpolation at Chebyshev points of the function
// named beside them.

namespace kvasir::backend::cpu {
namespace {

// f(column, lanes) over n columns; the last stretch may be shorter than sixteen.
template <class F>
inline void for_columns(std::size_t n, F&& f) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, std::size_t{16});
  if (i < n) f(i, n - i);
}

// bf16 bits in the low halves; nearest even, a NaN stays one.
inline U32x16 bf16_bits(F32x16 v) { return shift_right<16>(round_bits_to_bf16(bits(v), v)); }
inline F32x16 round_bf16(F32x16 v) {
  return from_bits(and_u(round_bits_to_bf16(bits(v), v), set1_u(0xffff0000u)));
}

template <std::size_t N>
inline F32x16 polynomial(const float (&c)[N], F32x16 x) {  // c[0] + c[1] x + …
  F32x16 sum = set1(c[N - 1]);
  for (std::size_t i = N - 1; i > 0; --i) sum = fma(sum, x, set1(c[i - 1]));
  return sum;
}

// e^x = 2^n e^r, |r| <= ln 2 / 2. 0 below -87.33 (no denormals), infinity above 88.73, NaN for NaN.
inline F32x16 exp(F32x16 x) {
  static constexpr float kTail[] = {0.5000000014286221f,    0.1666666668253471f,
                                    0.04166645680967861f,   0.008333310024156186f,
                                    0.0013934541928290215f, 0.00019891981345532188f};
  const F32x16 in = min(set1(89.0f), max(set1(-88.0f), x));
  const F32x16 shifted =
      fma(in, set1(1.44269504f), set1(12582912.0f));  // 1.5 · 2^23: n in the low bits
  const F32x16 n = sub(shifted, set1(12582912.0f));
  const F32x16 r = fma(n, set1(-1.42860677e-06f), fma(n, set1(-0.693145752f), in));
  const F32x16 e = add(set1(1.0f), fma(mul(r, r), polynomial(kTail, r), r));
  return select_less(x, set1(-87.33f), zero(), times_power(e, n));
}

inline F32x16 sigmoid(F32x16 x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }

inline F32x16 abs(F32x16 x) { return from_bits(and_u(bits(x), set1_u(0x7fffffffu))); }
inline F32x16 with_sign_of(F32x16 magnitude, F32x16 x) {
  return from_bits(or_u(bits(magnitude), and_u(bits(x), set1_u(0x80000000u))));
}

inline F32x16 tanh(F32x16 x) {
  static constexpr float kSmall[] = {
      -0.3333333317214635f,   0.13333303557127874f, -0.053959259601221686f, 0.021768918770071696f,
      -0.008343945784904527f, 0.002292745043279172f};  // (tanh x / x - 1) / x²
  const F32x16 a = abs(x), z = mul(x, x);
  const F32x16 small = fma(mul(polynomial(kSmall, z), z), x, x);
  const F32x16 large = sub(set1(1.0f), div(set1(2.0f), add(exp(add(a, a)), set1(1.0f))));
  return select_less(a, set1(0.625f), small, with_sign_of(large, x));
}

inline F32x16 silu(F32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// x Φ(x): below |x| = √2 by erf, beyond by the tail erfc(a) = e^{-g(a)}, which does not cancel.
inline F32x16 gelu(F32x16 x) {
  static constexpr float kErf[] = {0.12837916706154345f,   -0.376126384680283f,
                                   0.11283782495229884f,   -0.026865430727276925f,
                                   0.005221031806809115f,  -0.0008484080391066535f,
                                   0.0001126595892566042f, -9.667044297864475e-06f};
  static constexpr float kLogTail[] = {
      -0.0003201380502559914f, 1.130233434844492f,      0.631826051554617f,
      0.11008008295338217f,    -0.026421136008425446f,  0.004759596294299685f,
      -0.0005968056258945458f, 4.6058042718462846e-05f, -1.6371514161502072e-06f};
  const F32x16 y = mul(x, set1(0.707106781f)), a = abs(y);
  const F32x16 erf = fma(polynomial(kErf, mul(y, y)), y, y);
  const F32x16 clamped = min(set1(4.0f), a);
  const F32x16 tail =
      select_less(set1(4.0f), a, zero(), exp(sub(zero(), polynomial(kLogTail, clamped))));
  const F32x16 beyond = select_less(x, zero(), tail, sub(set1(2.0f), tail));
  return mul(mul(set1(0.5f), x), select_less(a, set1(1.0f), add(set1(1.0f), erf), beyond));
}

// max(x, 0) + log1p(z), z = e^-|x|; log1p(z) = 2 atanh(s), s = z / (2 + z) <= 1/3.
inline F32x16 softplus(F32x16 x) {
  static constexpr float kAtanh[] = {0.3333333366026371f, 0.1999985316596486f, 0.14296178997151418f,
                                     0.10853287900440187f,
                                     0.11612164612011674f};  // (atanh s / s - 1) / s²
  const F32x16 z = exp(sub(zero(), abs(x))), s = div(z, add(set1(2.0f), z)), w = mul(s, s);
  const F32x16 log1p = mul(add(s, s), fma(w, polynomial(kAtanh, w), set1(1.0f)));
  return add(max(x, zero()), log1p);
}

inline F32x16 gelu_tanh(F32x16 x) {  // 1 + tanh y = 2 / (1 + e^{-2y})
  const F32x16 y = mul(set1(-1.59576912f), fma(mul(mul(set1(0.044715f), x), x), x, x));
  return div(x, add(set1(1.0f), exp(y)));
}

}  // namespace
}  // namespace kvasir::backend::cpu
