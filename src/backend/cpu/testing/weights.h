// Test helpers: devices of this backend and what they are compared with.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/detail/cpu_ops.h"
#include "backend/ref/ref_device.h"
#include "base/half.h"
#include "codec/list.h"
#include "codec/weight_matrix.h"
#include "ops/op_table.h"
#include "ops/testing.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cpu::testing {

using ops::testing::all_types;
using ops::testing::product;
using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

inline std::unique_ptr<ops::Device> make(int n_threads = 2, Isa isa = Isa::automatic) {
  return *make_cpu_device({.n_threads = n_threads, .isa = isa});
}
// Every instruction set of this machine, lanes with each kind of integers beside them that it has
// and with none, and tiles played in AVX-512 where they can be.
struct NamedDevice {
  std::string name;
  std::unique_ptr<ops::Device> device;
};
inline std::vector<NamedDevice> every_device(int n_threads) {
  std::vector<NamedDevice> out;
  for (const Isa isa : kIsas) {
    if (cpu_supports(isa)) out.push_back({std::string(name_of(isa)), make(n_threads, isa)});
  }
#if defined(__x86_64__)
  const auto add = [&](const KernelTable& kernels, const Int8Kernels* on_grid) {
    out.push_back({std::string(kernels.name) + " and " + (on_grid ? on_grid->name : "no integers"),
                   std::make_unique<CpuDevice>(kernels, n_threads, nullptr, on_grid)});
  };
  if (cpu_supports(Isa::avx2)) {
    add(kAvx2Kernels, nullptr);
    add(kAvx2Kernels, &kAvx2GridKernels);
    if (has_avx_vnni()) add(kAvx2Kernels, &kAvxVnniGridKernels);
  }
  if (cpu_supports(Isa::avx512)) {
    add(kAvx512Kernels, nullptr);
    add(kAvx512Kernels, &kAvx512GridKernels);
  }
  if (can_emulate_amx()) {
    out.push_back({std::string(emulated_amx_kernels().name),
                   std::make_unique<CpuDevice>(emulated_amx_kernels(), n_threads)});
  }
#endif
  return out;
}
// The same with 8-bit activations: every set of kernels for them that this machine runs.
inline std::vector<NamedDevice> every_int8_device(int n_threads) {
  std::vector<NamedDevice> out;
  const auto add = [&](const Int8Kernels& kernels) {
    out.push_back(
        {kernels.name, std::make_unique<CpuDevice>(kPortableKernels, n_threads, &kernels)});
  };
  add(kPortableInt8Kernels);
#if defined(__x86_64__)
  if (cpu_supports(Isa::avx2)) add(kAvx2Int8Kernels);
  if (has_avx_vnni()) add(kAvxVnniInt8Kernels);
  if (cpu_supports(Isa::avx512)) add(kAvx512Int8Kernels);
  if (has_vnni()) add(kVnniInt8Kernels);
  if (has_byte_tiles()) add(kAmxInt8Kernels);
  if (has_vnni() && can_emulate_amx()) add(kEmulatedAmxInt8Kernels);
#endif
  return out;
}
inline std::unique_ptr<ops::Device> make_mirror() {
  return ref::make_ref_device(ref::RefMode::mirror);
}
inline std::unique_ptr<ops::Device> make_oracle() {
  return ref::make_ref_device(ref::RefMode::oracle);
}

}  // namespace kvasir::backend::cpu::testing
