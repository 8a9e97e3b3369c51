// Tensors of a hub folder → one entry a module, by canonical name, whatever the quantization.
#pragma once

#include <vector>

#include "base/result.h"
#include "formats/detail/hub_quantization.h"
#include "formats/detail/opened_model.h"

namespace kvasir::formats {

using TensorList = std::vector<const SafeTensor*>;

// In the order of the tensors; planes join the tensor that they belong to. The tensors must stay
// where they are.
Result<std::vector<StoredTensor>> fold_entries(const TensorList& tensors,
                                               const HubQuantization& quantization);

}  // namespace kvasir::formats
