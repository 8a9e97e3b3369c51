// Encoding is codec/kv's arithmetic, operation by operation: equal bytes. A warp has a row; teams
// of 8 lanes have its groups, because codec/kv/row_codec.h finds a group's range in 8 lanes, which
// decides the sign of a zero. This file is compiled with denormals flushed, as codec::encode_row
// runs.
#include "backend/cuda/device/kv_rows.h"
#include "backend/cuda/device/kv_side.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr std::uint32_t kWarps = 4, kTeam = 8;
constexpr float kLargestF16 = 65504.0f, kEpsilon = 1e-8f, kSmallestScale = 1e-7f;

__device__ float quiet_nan() { return __uint_as_float(0x7fc00000u); }
// GPUs make another NaN than CPUs.
__device__ float plain_nan(float x) { return x != x ? quiet_nan() : x; }

struct Range {
  float smallest, largest;
};
// Of x[n], n a multiple of 8, in every lane of the team. NaN where any element is one.
__device__ Range range_of(const float* x, std::uint32_t n) {
  const std::uint32_t lane = threadIdx.x % kTeam;
  const unsigned team = 0xffu << (threadIdx.x % 32 / kTeam * kTeam);
  float low = x[lane], high = x[lane];
  int nans = 0;
  for (std::uint32_t i = lane; i < n; i += kTeam) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    nans |= x[i] != x[i] ? 1 : 0;
  }
  Range out{__shfl_sync(team, low, 0, kTeam), __shfl_sync(team, high, 0, kTeam)};
  for (int l = 1; l < static_cast<int>(kTeam); ++l) {
    const float other_low = __shfl_sync(team, low, l, kTeam);
    const float other_high = __shfl_sync(team, high, l, kTeam);
    out.smallest = other_low < out.smallest ? other_low : out.smallest;
    out.largest = other_high > out.largest ? other_high : out.largest;
  }
  if (__any_sync(team, nans)) out = {quiet_nan(), quiet_nan()};
  return out;
}

__device__ std::uint8_t round_within(float x, float low, float high) {
  const float inside = !(x > low) ? low : x < high ? x : high;
  return static_cast<std::uint8_t>(static_cast<int>(rintf(inside)));
}

struct Scaling {
  float scale, offset;
};

__device__ Scaling affine_scaling(Range range, float top) {
  float scale = (range.largest - range.smallest) / top;
  if (scale < kSmallestScale) scale = kSmallestScale;
  float edge = range.smallest;
  if (!(fabsf(range.smallest) > fabsf(range.largest))) {
    scale = -scale;
    edge = range.largest;
  }
  const float steps = rintf(edge / scale);
  return steps != 0.0f ? Scaling{edge / steps, edge} : Scaling{scale, 0.0f};
}

__device__ Scaling turbo_scaling(Range range, std::uint32_t bits) {
  if (bits == 8) {
    const float scale = (range.largest - range.smallest) / 254.0f;
    return {scale, rintf((range.largest + range.smallest) / (2.0f * (scale + kEpsilon)))};
  }
  const float scale = (range.largest - range.smallest) / static_cast<float>((1 << bits) - 1);
  return {scale, rintf(range.smallest / (scale + kEpsilon))};
}
__device__ bool is_storable(Scaling s) {
  const float stored = f32_of_f16(f16_bits(s.scale));
  return stored != 0.0f && isfinite(stored) && fabsf(s.offset) <= kLargestF16;
}
__device__ float clamp_to_f16(float x) {  // a NaN stays one
  return x < -kLargestF16 ? -kLargestF16 : x > kLargestF16 ? kLargestF16 : x;
}

// Scale and codes of one group by one team.
__device__ Scaling encode_affine(const KvSide& side, const float* x, std::uint8_t* codes) {
  const auto top = static_cast<float>((1 << side.bits) - 1);
  const Scaling s = affine_scaling(range_of(x, side.group), top);
  for (std::uint32_t i = threadIdx.x % kTeam; i < side.group; i += kTeam)
    codes[i] = round_within((x[i] - s.offset) / s.scale, 0.0f, top);
  return s;
}

__device__ Scaling encode_turbo_keys(const KvSide& side, const float* x, std::uint8_t* codes) {
  const Range range = range_of(x, side.group);
  Scaling s = turbo_scaling(range, side.bits);
  const bool stored = is_storable(s);
  const float low = side.bits == 8 ? -127.0f : 0.0f;
  const float high = side.bits == 8 ? 127.0f : static_cast<float>((1 << side.bits) - 1);
  const float divisor = s.scale + kEpsilon;
  for (std::uint32_t i = threadIdx.x % kTeam; i < side.group; i += kTeam) {
    const float inside = x[i] / divisor - s.offset;
    const float bounded = !(inside > low) ? low : inside < high ? inside : high;
    codes[i] = stored ? static_cast<std::uint8_t>(static_cast<int>(rintf(bounded))) : 0;
  }
  if (!stored) s = {clamp_to_f16((range.largest + range.smallest) / 2.0f), 1.0f};
  return s;
}

__device__ Scaling encode_turbo_values(const KvSide& side, const float* x, std::uint8_t* codes) {
  float sum = 0.0f;
  for (std::uint32_t i = 0; i < side.group; ++i) sum = sum + x[i] * x[i];
  float scale = sqrtf(sum / static_cast<float>(side.group));
  scale = scale > kLargestF16 ? kLargestF16 : scale;
  const float divisor = scale + kEpsilon;
  for (std::uint32_t i = threadIdx.x % kTeam; i < side.group; i += kTeam)
    codes[i] = static_cast<std::uint8_t>(code_of(side.bits, x[i] / divisor));
  return {scale, 0.0f};
}

// The codes' bit stream, a byte a lane: whole groups are whole bytes.
__device__ void store_codes(const std::uint8_t* codes,
                            std::uint32_t bits,
                            std::uint32_t n_bytes,
                            std::byte* to) {
  for (std::uint32_t b = threadIdx.x % 32; b < n_bytes; b += 32) {
    std::uint32_t value = 0;
    for (std::uint32_t i = 8 * b / bits; i * bits < 8 * b + 8; ++i) {
      const int shift = static_cast<int>(i * bits) - static_cast<int>(8 * b);
      value |= shift >= 0 ? std::uint32_t{codes[i]} << shift : std::uint32_t{codes[i]} >> -shift;
    }
    to[b] = static_cast<std::byte>(value & 0xffu);
  }
}

// x[dim] in shared memory, which may be changed, by one warp; `row` of the side.
__device__ void encode_row(
    const KvSide& side, float* x, std::uint8_t* codes, std::uint32_t dim, std::size_t row) {
  if (side.kind == KvKind::turbo_values) {
    for (std::uint32_t i = threadIdx.x % 32; i < dim; i += 32) x[i] *= sign_of(i);
    __syncwarp();
    transform_by_warp(x, dim);
    const float scale = rotation_scale(dim);
    for (std::uint32_t i = threadIdx.x % 32; i < dim; i += 32) x[i] *= scale;
    __syncwarp();
  }
  for (std::uint32_t g = threadIdx.x % 32 / kTeam; g < dim / side.group; g += 32 / kTeam) {
    const float* const group = x + g * side.group;
    std::uint8_t* const group_codes = codes + g * side.group;
    const Scaling s = side.kind == KvKind::affine ? encode_affine(side, group, group_codes)
                      : side.kind == KvKind::turbo_keys
                          ? encode_turbo_keys(side, group, group_codes)
                          : encode_turbo_values(side, group, group_codes);
    if (threadIdx.x % kTeam == 0) {
      store_as(side.scale_type, side.scales + row * side.scale_bytes, g, plain_nan(s.scale));
      if (side.offsets)
        store_as(side.scale_type, side.offsets + row * side.offset_bytes, g, plain_nan(s.offset));
    }
  }
  __syncwarp();
  store_codes(codes, side.bits, side.code_bytes, side.codes + row * side.code_bytes);
}

__device__ std::size_t row_index(const KvLayer& layer,
                                 const std::uint32_t* blocks,
                                 std::uint32_t head,
                                 std::uint32_t position) {
  const std::uint32_t block = blocks[position / layer.block_tokens];
  return (std::size_t{block} * layer.n_kv_heads + head) * layer.block_tokens +
         position % layer.block_tokens;
}

struct Shared {
  float* x;
  std::uint8_t* codes;
};
__device__ Shared shared_of_warp(std::uint32_t dim) {
  extern __shared__ float shared[];
  const std::uint32_t warp = threadIdx.x / 32;
  return {shared + std::size_t{warp} * dim,
          reinterpret_cast<std::uint8_t*>(shared + std::size_t{kWarps} * dim) + warp * dim};
}

// A warp's item: which token, head and side.
struct Item {
  std::uint32_t token, head, side;
};
__device__ Item item_of(const KvLayer& layer) {
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, pairs = 2 * layer.n_kv_heads;
  return {item / pairs, item % pairs / 2, item % 2};
}

__global__ void append_kernel(AppendParams p) {
  const KvLayer& layer = p.layer;
  const KvRow row = p.rows[blockIdx.y];
  const Item item = item_of(layer);
  if (item.token >= row.n_new) return;
  const float* const x =
      p.x[item.side].row(row.first_token + item.token) + std::size_t{item.head} * layer.head_dim;
  const std::size_t index = row_index(layer, row.blocks, item.head, row.length + item.token);
  if (row.is_encoded == 0) {
    const KvSide& side = layer.exact[item.side];
    std::byte* const to = side.codes + index * side.code_bytes;
    for (std::uint32_t i = threadIdx.x % 32; i < layer.head_dim; i += 32)
      store_as(layer.type, to, i, x[i]);
    return;
  }
  const Shared shared = shared_of_warp(layer.head_dim);
  for (std::uint32_t i = threadIdx.x % 32; i < layer.head_dim; i += 32)
    shared.x[i] = round_as(layer.type, x[i]);
  __syncwarp();
  encode_row(layer.encoded[item.side], shared.x, shared.codes, layer.head_dim, index);
}

__global__ void convert_kernel(ConvertParams p) {
  const KvLayer& layer = p.layer;
  const Item item = item_of(layer);
  const std::uint32_t position = p.begin + item.token;
  if (position >= p.end) return;
  const KvSide& from = layer.exact[item.side];
  const std::size_t index = row_index(layer, p.from, item.head, position);
  const Shared shared = shared_of_warp(layer.head_dim);
  for (std::uint32_t i = threadIdx.x % 32; i < layer.head_dim; i += 32)
    shared.x[i] = load_as(layer.type, from.codes + index * from.code_bytes, i);
  __syncwarp();
  encode_row(layer.encoded[item.side], shared.x, shared.codes, layer.head_dim,
             row_index(layer, p.to, item.head, position));
}

std::uint32_t n_blocks_of(const KvLayer& layer, std::uint32_t n_tokens) {
  return (n_tokens * layer.n_kv_heads * 2 + kWarps - 1) / kWarps;
}
std::size_t shared_bytes_of(const KvLayer& layer) {
  return kWarps * layer.head_dim * std::size_t{5};
}

}  // namespace

void launch_append(Queue& queue,
                   const AppendParams& p,
                   std::uint32_t n_rows,
                   std::uint32_t most_new) {
  if (n_rows == 0 || most_new == 0) return;
  queue.launch(append_kernel, dim3(n_blocks_of(p.layer, most_new), n_rows), 32 * kWarps,
               p.layer.encoded[0].codes ? shared_bytes_of(p.layer) : 0, p);
}

void launch_convert(Queue& queue, const ConvertParams& p) {
  if (p.begin >= p.end) return;
  queue.launch(convert_kernel, dim3(n_blocks_of(p.layer, p.end - p.begin)), 32 * kWarps,
               shared_bytes_of(p.layer), p);
}

}  // namespace kvasir::backend::cuda
