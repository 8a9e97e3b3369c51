// Tensors of a quantized module that transformers' methods store apart → one tensor, as
// mlx_quantization.h does for MLX's. Shapes that do not fit each other are an error naming the
// first tensor; what cannot be read as a weight gets a refusal.
#pragma once

#include "base/result.h"
#include "formats/detail/hub_quantization.h"
#include "formats/detail/opened_model.h"

namespace kvasir::formats {

// The type that holds floats in planes; nothing for other dtypes.
std::optional<codec::ScaleType> scale_type_of(std::string_view dtype) noexcept;

// fp8: F8_E4M3 [out, in], scales [⌈out/128⌉, ⌈in/128⌉] of floats, one for 128 × 128 elements.
Result<StoredTensor> fold_f8(const SafeTensor& weight, const SafeTensor& scales);

// gpt-oss: U8 blocks [.., out, in/32, 16] of E2M1, U8 scales [.., out, in/32] of E8M0 → a stack
// [.., out, in].
Result<StoredTensor> fold_blocks(const SafeTensor& blocks, const SafeTensor& scales);

struct ColumnTensors {
  const SafeTensor* codes = nullptr;   // qweight
  const SafeTensor* zeros = nullptr;   // qzeros
  const SafeTensor* scales = nullptr;  // scales
  const SafeTensor* order = nullptr;   // g_idx, GPTQ only, may be absent
};
// gptq, awq: → [out, in] (codec/columns4.h says how they lie). The order is looked at when the
// tensor is asked for.
Result<StoredTensor> fold_columns(const HubQuantization& how, const ColumnTensors& from);
// Whether a GPTQ module's elements stand in the order of their groups; other orders have no affine
// form.
bool has_plain_order(const StoredTensor& tensor) noexcept;

}  // namespace kvasir::formats
