// Attention on a GPU, alone: decode in bytes of KV a second beside the copy bandwidth of the same
// run and, of codecs, beside bf16 (how many times faster, of how many times fewer bytes); prefill
// in operations a second. 32 query heads, 8 KV heads of 128; random rows.
// FORM fresh: decode of bf16 rows with all that is done to the new token's heads before.
//   cuda_attention_bench [FORM ROWS CONTEXT]     one decode alone; ROWS 0: prefill
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "base/check.h"
#include "ops/op_table.h"

namespace {

using namespace kvasir;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kHeads = 32, kKvHeads = 8, kDim = 128, kBlock = 64, kFill = 2048;
constexpr int kOpsAStep = 32, kSamples = 9;

Buffer take(ops::Device& device, std::size_t size_bytes) {
  auto buffer = device.allocate(size_bytes);
  KVASIR_CHECK(buffer.has_value()) << buffer.error().what;
  return *std::move(buffer);
}
void finish(const Status& status) { KVASIR_CHECK(status.has_value()) << status.error().what; }

// The median of seconds that f takes, after some calls to warm up.
template <class F>
double seconds_of(F&& f) {
  std::vector<double> samples;
  for (int i = 0; i < kSamples + 4; ++i) {
    const auto begin = Clock::now();
    f();
    if (i >= 4) samples.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(samples.begin(), samples.end());
  return samples[kSamples / 2];
}

struct Form {
  const char* name;
  codec::KvCodec k, v;
};

// Planes of rows x context positions in shuffled blocks, filled with random rows.
class Layer {
 public:
  Layer(ops::Device& device, const Form& form, std::uint32_t n_rows, std::uint32_t context)
      : device_(device), context_(context) {
    const std::uint32_t blocks_a_row = (context + kBlock - 1) / kBlock;
    tables_.resize(std::size_t{n_rows} * blocks_a_row);
    for (std::size_t i = 0; i < tables_.size(); ++i)
      tables_[i] = BlockId{static_cast<std::uint32_t>(i)};
    std::shuffle(tables_.begin(), tables_.end(), std::mt19937(1));
    view_.n_kv_heads = kKvHeads, view_.head_dim = kDim, view_.block_tokens = kBlock;
    const std::size_t slots = tables_.size() * kKvHeads * kBlock;
    const bool is_encoded = !form.k.is_exact();
    if (is_encoded) {
      view_.k_encoded = side(form.k, slots), view_.v_encoded = side(form.v, slots);
    } else {
      view_.k = plane(slots * kDim * 2), view_.v = plane(slots * kDim * 2);
    }
    for (std::uint32_t r = 0; r < n_rows; ++r)
      rows_.push_back({&tables_[std::size_t{r} * blocks_a_row], 0, 0, 0, r, is_encoded});
  }

  void fill(ConstMatView x) {
    for (KvRowView row : rows_) {
      row.first_token = 0;
      for (row.length = 0; row.length < context_; row.length += row.n_new) {
        row.n_new = std::min(x.n_rows, context_ - row.length);
        KvLayerView view = view_;
        view.rows = {&row, 1};
        device_.ops().kv_append(device_, {.k = x, .v = x, .kv = view});
        finish(device_.synchronize());
      }
    }
  }
  // Rows whose last n_new positions are the step's.
  KvLayerView view(std::uint32_t n_new) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      rows_[r].length = context_ - n_new, rows_[r].n_new = n_new;
      rows_[r].first_token = static_cast<std::uint32_t>(r) * n_new;
    }
    KvLayerView out = view_;
    out.rows = rows_;
    return out;
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* plane(std::size_t size_bytes) {
    size_bytes_ += size_bytes;
    return buffers_.emplace_back(take(device_, size_bytes)).data();
  }
  KvEncodedSide side(const codec::KvCodec& codec, std::size_t slots) {
    KvEncodedSide out;
    out.codec = codec;
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
      out.row_bytes[part] = codec::row_bytes(codec, static_cast<codec::KvRowPart>(part), kDim);
      if (out.row_bytes[part] > 0) out.planes[part] = plane(slots * out.row_bytes[part]);
    }
    return out;
  }

  ops::Device& device_;
  std::uint32_t context_;
  std::vector<BlockId> tables_;
  std::vector<KvRowView> rows_;
  std::vector<Buffer> buffers_;
  std::size_t size_bytes_ = 0;
  KvLayerView view_;
};

// Random floats in device memory, [n_rows, n_cols].
class Matrix {
 public:
  Matrix(ops::Device& device, std::uint32_t n_rows, std::uint32_t n_cols)
      : buffer_(take(device, std::size_t{n_rows} * n_cols * 4)), n_rows_(n_rows), n_cols_(n_cols) {
    std::mt19937 rng(n_rows);
    std::normal_distribution<float> normal;
    std::vector<float> values(std::size_t{n_rows} * n_cols);
    for (float& v : values) v = normal(rng);
    device.copy(buffer_.data(), reinterpret_cast<const std::byte*>(values.data()),
                values.size() * 4);
    finish(device.synchronize());
  }
  MatView view() const { return mat_view(buffer_.f32(), n_rows_, n_cols_); }

 private:
  Buffer buffer_;
  std::uint32_t n_rows_, n_cols_;
};

double copy_bandwidth(ops::Device& device) {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  const Buffer from = take(device, kBytes), to = take(device, kBytes);
  return 2.0 * kBytes / seconds_of([&] {
           device.copy(to.data(), from.data(), kBytes);
           finish(device.synchronize());
         });
}

struct Decoded {
  double seconds, bytes;
};
// attend(layer's view) is the op that is timed.
template <class Attend>
Decoded decode(ops::Device& device,
               const char* name,
               const Form& form,
               std::uint32_t n_rows,
               std::uint32_t context,
               ConstMatView fill,
               double copy,
               Attend&& attend) {
  // Enough layers that none is in the cache when its turn comes again.
  std::vector<std::unique_ptr<Layer>> layers;
  std::size_t total = 0;
  while (total < (std::size_t{400} << 20) || layers.empty()) {
    layers.push_back(std::make_unique<Layer>(device, form, n_rows, context));
    layers.back()->fill(fill);
    total += layers.back()->size_bytes();
    if (layers.size() == kOpsAStep) break;
  }
  const int n_ops = n_rows * std::uint64_t{context} > 1000000 ? 8 : kOpsAStep;
  const double seconds = seconds_of([&] {
                           device.begin_step(n_rows);
                           for (int i = 0; i < n_ops; ++i)
                             attend(layers[static_cast<std::size_t>(i) % layers.size()]->view(1));
                           finish(device.end_step());
                         }) /
                         n_ops;
  const double bytes = static_cast<double>(layers[0]->size_bytes());
  std::printf("decode  %-12s %3u rows x %6u: %8.1f us  %8.2f MB  %7.1f GB/s  %5.1f %% of copy",
              name, n_rows, context, seconds * 1e6, bytes * 1e-6, bytes / seconds * 1e-9,
              100 * bytes / seconds / copy);
  return {seconds, bytes};
}

Decoded decode(ops::Device& device,
               const Form& form,
               std::uint32_t n_rows,
               std::uint32_t context,
               ConstMatView fill,
               double copy) {
  const Matrix q(device, n_rows, kHeads * kDim), out(device, n_rows, kHeads * kDim);
  return decode(device, form.name, form, n_rows, context, fill, copy, [&](const KvLayerView& kv) {
    device.ops().attention(
        device,
        {.q = q.view(), .kv = kv, .n_heads = kHeads, .scale = 0.088388f, .out = out.view()});
  });
}

// Norms of heads, turned in halves.
void decode_fresh(ops::Device& device,
                  const Form& form,
                  std::uint32_t n_rows,
                  std::uint32_t context,
                  ConstMatView fill,
                  double copy) {
  const Matrix qkv(device, n_rows, (kHeads + 2 * kKvHeads) * kDim),
      out(device, n_rows, kHeads * kDim), norms(device, 2, kDim),
      turns(device, 2 * context, kDim / 2);
  const std::vector<std::uint32_t> positions(n_rows, context - 1);
  const MatView all = qkv.view();
  decode(device, "fresh", form, n_rows, context, fill, copy, [&](const KvLayerView& kv) {
    const MatView q = all.columns(0, kHeads * kDim);
    device.ops().prepared_attention(
        device,
        {.prepare = {.q = q,
                     .k = all.columns(kHeads * kDim, kKvHeads * kDim),
                     .v = all.columns((kHeads + kKvHeads) * kDim, kKvHeads * kDim),
                     .q_norm = norms.view().row(0),
                     .k_norm = norms.view().row(1),
                     .q_group = kDim,
                     .k_group = kDim,
                     .eps = 1e-6f,
                     .head_dim = kDim,
                     .n_pairs = kDim / 2,
                     .interleaved = false,
                     .positions = positions,
                     .cos = turns.view().row(0),
                     .sin = turns.view().row(context),
                     .kv = kv},
         .attend = {.q = q, .kv = kv, .n_heads = kHeads, .scale = 0.088388f, .out = out.view()}});
  });
  std::printf("\n");
}

void prefill(ops::Device& device, const Form& form, std::uint32_t n, ConstMatView fill) {
  Layer layer(device, form, 1, n);
  layer.fill(fill);
  const Matrix q(device, n, kHeads * kDim), out(device, n, kHeads * kDim);
  const double seconds = seconds_of([&] {
    device.ops().attention(device, {.q = q.view(),
                                    .kv = layer.view(n),
                                    .n_heads = kHeads,
                                    .scale = 0.088388f,
                                    .out = out.view()});
    finish(device.synchronize());
  });
  const double operations = 2.0 * n * (n + 1.0) * kDim * kHeads;  // scores and values, causal
  std::printf("prefill %-12s %6u tokens: %8.2f ms  %6.1f TFLOP/s\n", form.name, n, seconds * 1e3,
              operations / seconds * 1e-12);
}

}  // namespace

int main(int argc, char** argv) {
  auto made = backend::cuda::make_cuda_device({});
  KVASIR_CHECK(made.has_value()) << made.error().what;
  ops::Device& device = **made;
  const double copy = copy_bandwidth(device);
  std::printf("%s: copy %.0f GB/s\n", device.label().c_str(), copy * 1e-9);
  constexpr auto kBf16 = codec::ScaleType::bf16;
  const Form forms[] = {
      {"bf16", codec::exact_kv(kBf16), codec::exact_kv(kBf16)},
      {"affine:8:64", codec::affine_kv(8, 64, kBf16), codec::affine_kv(8, 64, kBf16)},
      {"affine:4:64", codec::affine_kv(4, 64, kBf16), codec::affine_kv(4, 64, kBf16)},
      {"turbo:8/3", codec::turbo_keys_kv(8), codec::turbo_values_kv(3)},
  };
  const Matrix fill(device, kFill, kKvHeads * kDim);
  std::map<std::pair<std::uint32_t, std::uint32_t>, Decoded> exact;
  const auto decode_beside_exact = [&](const Form& form, std::uint32_t rows,
                                       std::uint32_t context) {
    const Decoded got = decode(device, form, rows, context, fill.view(), copy);
    const auto [beside, is_new] = exact.try_emplace({rows, context}, got);
    if (!is_new)
      std::printf("  x%.2f of x%.2f", beside->second.seconds / got.seconds,
                  beside->second.bytes / got.bytes);
    std::printf("\n");
  };
  if (argc == 1) {
    for (const auto& [rows, context] :
         {std::pair{1u, 512u}, std::pair{1u, 4096u}, std::pair{1u, 32768u}, std::pair{16u, 2048u}})
      decode_fresh(device, forms[0], rows, context, fill.view(), copy);
  }
  if (argc == 4 && argv[1] == std::string("fresh"))
    decode_fresh(device, forms[0], static_cast<std::uint32_t>(std::stoul(argv[2])),
                 static_cast<std::uint32_t>(std::stoul(argv[3])), fill.view(), copy);
  for (const Form& form : forms) {
    if (argc == 4) {
      const auto rows = static_cast<std::uint32_t>(std::stoul(argv[2])),
                 context = static_cast<std::uint32_t>(std::stoul(argv[3]));
      if (argv[1] != std::string(form.name)) continue;
      rows == 0 ? prefill(device, form, context, fill.view())
                : decode_beside_exact(form, rows, context);
      continue;
    }
    for (const std::uint32_t rows : {1u, 64u}) {
      for (const std::uint32_t context : {256u, 2048u, 8192u, 32768u}) {
        if (rows == 64 && context == 32768 && &form != &forms[0]) continue;
        decode_beside_exact(form, rows, context);
      }
    }
    for (const std::uint32_t n : {4096u, 32768u}) prefill(device, form, n, fill.view());
    std::fflush(stdout);
  }
}
