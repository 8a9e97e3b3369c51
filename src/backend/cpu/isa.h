// Instruction sets of the CPU backend's kernels, narrowest first. All give the same bits
// (docs/numerics.md); --isa names one. Any thread; the first question about amx asks the system for
// its tile registers, once a process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::backend::cpu {

// automatic: the widest that this CPU has. avx2 includes FMA and F16C; avx512 F, BW, DQ, VL;
// avx512bf16 VBMI and BF16 too; amx avx512 with VBMI and the tiles of bf16.
enum class Isa : std::uint8_t { automatic, portable, avx2, avx512, avx512bf16, amx };

inline constexpr std::array kIsas{Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx};

std::string_view name_of(Isa isa) noexcept;
Result<Isa> parse_isa(std::string_view name);  // invalid_argument: no such name
std::string isa_names();                       // for help texts: "auto, portable, …"

// Whether this CPU and system run the kernels of an instruction set.
bool cpu_supports(Isa isa) noexcept;
Isa widest_isa() noexcept;  // avx512bf16 only where it is faster than avx512

}  // namespace kvasir::backend::cpu
