// open_scheme: the KV scheme that the options and the model ask for, checked against its layers.
#pragma once

#include "contract/kv_list.h"
#include "kv/kv_scheme.h"
#include "kvasir/options.h"

namespace kvasir {

// `exact_f32`: the model computes in f32. Reads the model's kv_config.json when it is asked for.
// Errors: KV-3's and KV-7's texts. Warns once a process of layers that turbo leaves exact (KV-27).
Result<kv::KvScheme> open_scheme(const OpenOptions& options, bool exact_f32, const KvList& list);

// A budget that holds n_rows rows of that many tokens in every form, for tools that size a store by
// their own needs.
std::size_t budget_of_rows(const KvList& list,
                           const kv::KvScheme& scheme,
                           std::uint64_t n_rows,
                           std::uint64_t n_tokens);

}  // namespace kvasir
