// exp and its relatives exactly as backend/cpu computes them, one value at a time: the polynomials
// and roundings of docs/numerics.md. The mirror needs them to the bit: a last-bit difference that
// moves a value to the next bf16 would grow to 1e-3 of the logits in a few layers.
#pragma once

namespace kvasir::backend::ref {

float mirror_exp(float x) noexcept;
float mirror_tanh(float x) noexcept;
float mirror_sigmoid(float x) noexcept;
float mirror_silu(float x) noexcept;
float mirror_gelu(float x) noexcept;
float mirror_gelu_tanh(float x) noexcept;
float mirror_softplus(float x) noexcept;

}  // namespace kvasir::backend::ref
