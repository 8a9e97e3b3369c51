#include "backend/ref/detail/mirror_math.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvasir::backend::ref {
namespace {

template <std::size_t N>
float polynomial(const float (&c)[N], float x) noexcept {  // c[0] + c[1] x + …
  float sum = c[N - 1];
  for (std::size_t i = N - 1; i > 0; --i) sum = std::fma(sum, x, c[i - 1]);
  return sum;
}

float power_of_two(std::int32_t n) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

}  // namespace

// e^x = 2^n e^r; n is split in two factors so that neither leaves the range of exponents.
float mirror_exp(float x) noexcept {
  static constexpr float kTail[] = {0.5000000014286221f,    0.1666666668253471f,
                                    0.04166645680967861f,   0.008333310024156186f,
                                    0.0013934541928290215f, 0.00019891981345532188f};
  if (x < -87.33f) return 0.0f;
  if (std::isnan(x)) return x;
  const float in = x < 89.0f ? x : 89.0f;
  const float shifted = std::fma(in, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = std::fma(n, -1.42860677e-06f, std::fma(n, -0.693145752f, in));
  const float e = 1.0f + std::fma(r * r, polynomial(kTail, r), r);
  const auto power = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u);
  const std::int32_t half = power >> 1;
  return (e * power_of_two(half)) * power_of_two(power - half);
}

float mirror_tanh(float x) noexcept {
  static constexpr float kSmall[] = {-0.3333333317214635f,   0.13333303557127874f,
                                     -0.053959259601221686f, 0.021768918770071696f,
                                     -0.008343945784904527f, 0.002292745043279172f};
  const float a = std::fabs(x), z = x * x;
  if (a < 0.625f) return std::fma(polynomial(kSmall, z) * z, x, x);
  return std::copysign(1.0f - 2.0f / (mirror_exp(a + a) + 1.0f), x);
}

float mirror_sigmoid(float x) noexcept { return 1.0f / (1.0f + mirror_exp(0.0f - x)); }

float mirror_silu(float x) noexcept { return x / (1.0f + mirror_exp(0.0f - x)); }

float mirror_gelu(float x) noexcept {
  static constexpr float kErf[] = {0.12837916706154345f,   -0.376126384680283f,
                                   0.11283782495229884f,   -0.026865430727276925f,
                                   0.005221031806809115f,  -0.0008484080391066535f,
                                   0.0001126595892566042f, -9.667044297864475e-06f};
  static constexpr float kLogTail[] = {
      -0.0003201380502559914f, 1.130233434844492f,      0.631826051554617f,
      0.11008008295338217f,    -0.026421136008425446f,  0.004759596294299685f,
      -0.0005968056258945458f, 4.6058042718462846e-05f, -1.6371514161502072e-06f};
  const float y = x * 0.707106781f, a = std::fabs(y);
  const float erf = std::fma(polynomial(kErf, y * y), y, y);
  if (a < 1.0f) return (0.5f * x) * (1.0f + erf);
  const float clamped = a < 4.0f ? a : 4.0f;
  const float tail = 4.0f < a ? 0.0f : mirror_exp(0.0f - polynomial(kLogTail, clamped));
  return (0.5f * x) * (x < 0.0f ? tail : 2.0f - tail);
}

float mirror_gelu_tanh(float x) noexcept {
  const float y = -1.59576912f * std::fma((0.044715f * x) * x, x, x);
  return x / (1.0f + mirror_exp(y));
}

// max(x, 0) + log1p(z), z = e^-|x|; log1p(z) = 2 atanh(s), s = z / (2 + z).
float mirror_softplus(float x) noexcept {
  static constexpr float kAtanh[] = {0.3333333366026371f, 0.1999985316596486f, 0.14296178997151418f,
                                     0.10853287900440187f, 0.11612164612011674f};
  const float z = mirror_exp(0.0f - std::fabs(x)), s = z / (2.0f + z), w = s * s;
  const float log1p = (s + s) * std::fma(w, polynomial(kAtanh, w), 1.0f);
  return (0.0f < x ? x : 0.0f) + log1p;
}

}  // namespace kvasir::backend::ref
