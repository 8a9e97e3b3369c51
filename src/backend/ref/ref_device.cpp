#include "backend/ref/ref_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"

namespace kvasir::backend::ref {
namespace {

constexpr ops::OpTable kOps{.embed = &embed,
                            .rms_norm = &rms_norm,
                            .layer_norm = &layer_norm,
                            .linear = &linear,
                            .rope = &rope,
                            .kv_append = &kv_append,
                            .kv_convert = &kv_convert,
                            .attention = &attention,
                            .act_mul = &act_mul,
                            .gate_rows = &gate_rows,
                            .add_scaled = &add_scaled,
                            .scale = &scale,
                            .gather_rows = &gather_rows,
                            .l2_norm = &l2_norm,
                            .causal_conv = &causal_conv,
                            .delta_gates = &delta_gates,
                            .gated_delta = &gated_delta,
                            .latent_append = &latent_append,
                            .latent_attention = &latent_attention,
                            .index_select = &index_select,
                            .moe_route = &moe_route,
                            .moe_experts = &ops::moe_experts_composed,
                            .pick = &pick};

void free_buffer(void*, std::byte* data, std::size_t size_bytes) noexcept {
  munmap(data, std::max<std::size_t>((size_bytes + 63) / 64 * 64, 64));
}

void keep_codes(const codec::WeightMatrix& weight,
                const codec::WeightTypeInfo& info,
                RefMatrix& m) {
  const std::size_t n_in = weight.n_in, n_groups = n_in / info.group;
  m.group = static_cast<std::uint32_t>(info.group);
  m.has_bias = info.has_bias;
  m.codes.resize(weight.n_out * n_in);
  m.scales.resize(weight.n_out * n_groups);
  m.biases.resize(weight.n_out * n_groups);
  for (std::size_t r = 0; r < weight.n_out; ++r) {
    codec::unpack_row(weight.type, weight.row(r), n_in, m.codes.data() + r * n_in,
                      m.scales.data() + r * n_groups, m.biases.data() + r * n_groups);
  }
}

// docs/numerics.md, "Products": which grid x goes to, and codes without a sign that get one.
void plan_grid(const codec::WeightTypeInfo& info, RefMatrix& m) {
  const bool is_shifted = info.bits == 8 && !info.is_signed && info.has_bias;
  const double largest = info.is_signed || is_shifted ? std::exp2(info.bits - 1)
                                                      : std::exp2(info.bits) - 1,
               n = info.group <= 32 ? static_cast<double>(info.group)
                                    : std::max(32.0, static_cast<double>(info.group) - 32);
  for (int bits = 11; bits <= 13; ++bits)
    if (largest * n * 255 * std::exp2(bits - 7) < 0x1p24) m.grid = bits;
  if (m.grid != 0 && is_shifted) m.code_shift = 128;
}

class RefDevice final : public ops::Device {
 public:
  RefDevice(RefMode mode, bool int8_activations)
      : mode_(mode), int8_(int8_activations && mode == RefMode::mirror) {}

  RefMode mode() const noexcept { return mode_; }
  std::string_view name() const noexcept override {
    return mode_ == RefMode::oracle   ? "ref"
           : mode_ == RefMode::mirror ? "ref:mirror"
                                      : "ref:mirror-cuda";
  }
  std::string numerics_id() const override {
    return std::string(name()) + (int8_ ? "-int8-1" : "-1");
  }
  std::string label() const override { return std::string(name()) + (int8_ ? " int8" : ""); }
  const ops::OpTable& ops() const noexcept override { return kOps; }
  bool is_exact() const noexcept override { return mode_ == RefMode::oracle; }

  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind) override {
    const std::size_t rounded = (size_bytes + 63) / 64 * 64;
    if (rounded < size_bytes) return Error{Errc::capacity, "buffer size overflows"};
    // Zero pages of the system: they cost nothing until they are touched.
    void* data = mmap(nullptr, std::max<std::size_t>(rounded, 64), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return Error{Errc::capacity,
                   "no memory for a buffer of " + std::to_string(size_bytes) + " bytes"};
    }
    return Buffer(static_cast<std::byte*>(data), size_bytes, &free_buffer);
  }

  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override {
    const codec::WeightTypeInfo& info = codec::info(weight.type);
    auto m = std::make_unique<RefMatrix>(weight.n_out, weight.n_in);
    m->exact_f32 = options.exact_f32;
    try {
      if (mode_ != RefMode::oracle && info.quantized && !is_plain(options)) {
        keep_codes(weight, info, *m);
        m->takes_int8 = int8_ && !options.exact_f32;
        if (mode_ == RefMode::mirror && !m->takes_int8 && !options.exact_f32) plan_grid(info, *m);
      } else {
        m->values.resize(std::size_t{weight.n_out} * weight.n_in);
        for (std::size_t r = 0; r < weight.n_out; ++r)
          weight.decode(r, m->values.data() + r * weight.n_in);
        if (mode_ != RefMode::oracle && !options.exact_f32) {
          for (float& w : m->values) w = round_to_bf16(w);
        }
      }
    } catch (const std::bad_alloc&) {
      return Error{Errc::capacity, "no memory for a weight"};
    }
    return std::unique_ptr<ops::PackedMatrix>(std::move(m));
  }

  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    std::memcpy(to, from, size_bytes);
  }

 private:
  // backend/cuda decodes exact weights whatever their type.
  bool is_plain(ops::PackOptions options) const noexcept {
    return mode_ == RefMode::mirror_cuda && options.exact_f32;
  }

  RefMode mode_;
  bool int8_;
};

}  // namespace

std::size_t RefMatrix::size_bytes() const noexcept {
  return (values.size() + scales.size() + biases.size()) * sizeof(float) +
         codes.size() * sizeof(std::int16_t);
}

RefMode mode_of(const ops::Device& device) noexcept {
  return static_cast<const RefDevice&>(device).mode();
}

std::unique_ptr<ops::Device> make_ref_device(RefMode mode, bool int8_activations) {
  return std::make_unique<RefDevice>(mode, int8_activations);
}

}  // namespace kvasir::backend::ref
