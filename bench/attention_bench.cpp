// One query's attention alone at a depth, per KV codec beside bf16, interleaved in one process: how
// many bytes a second it reads, and how much of what fewer bytes promise it keeps.
//   attention_bench [HEAD_DIM] [DEPTH] [THREADS] [ROUNDS] [HEADS_PER_KV_HEAD] [SCHEMES]
// SCHEMES: the first so many of bf16, affine8, affine4 and the turbo ones.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/limits.h"
#include "ops/op_table.h"
#include "tensor/buffer.h"

namespace kvasir {
namespace {

constexpr std::uint32_t kBlockTokens = 64, kKvHeads = 8;
// More than the caches hold, so that each layer's keys and values come from memory.
constexpr std::size_t kWorkingSet = std::size_t{192} << 20;

struct Scheme {
  std::string name;
  codec::KvCodec k{}, v{};
  bool is_exact() const { return k.is_exact(); }
};

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> out{{"bf16", {}, {}}};
  for (const int bits : {8, 4}) {
    const codec::KvCodec affine = codec::affine_kv(bits, 64, codec::ScaleType::bf16);
    out.push_back({"affine" + std::to_string(bits), affine, affine});
  }
  constexpr int kPairs[][2] = {{8, 8}, {8, 5}, {8, 4}, {8, 3}, {5, 5}, {4, 4}, {4, 2}, {2, 2}};
  for (const auto& [k, v] : kPairs)
    out.push_back({"turbo-k" + std::to_string(k) + "v" + std::to_string(v), codec::turbo_keys_kv(k),
                   codec::turbo_values_kv(v)});
  return out;
}

// With one thread its own time, which other work on the machine disturbs less.
double now_s(int n_threads) {
  timespec t{};
  clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Shape {
  std::uint32_t dim = 0, depth = 0, heads_per_kv = 0;
};

// Layers of one scheme with a row of `depth` tokens each, filled through the backend.
class Layers {
 public:
  Layers(ops::Device& device, const Scheme& scheme, const Shape& shape)
      : device_(device),
        scheme_(scheme),
        dim_(shape.dim),
        depth_(shape.depth),
        n_heads_(kKvHeads * shape.heads_per_kv) {
    const std::uint32_t depth = depth_;
    const std::uint32_t n_blocks = (depth + kBlockTokens) / kBlockTokens;
    for (std::uint32_t i = 0; i < n_blocks; ++i) blocks_.push_back(BlockId{i});
    n_rows_ = std::size_t{n_blocks} * kBlockTokens * kKvHeads;
    do {
      add_layer();
    } while (layers_.size() * bytes() < kWorkingSet);
  }
  // Of keys and values that one layer's query reads.
  std::size_t bytes() const {
    std::size_t row = 0;
    for (const codec::KvCodec& c : {scheme_.k, scheme_.v}) {
      if (scheme_.is_exact()) row += 2 * std::size_t{dim_};
      for (std::size_t part = 0; part < codec::kKvRowParts && !scheme_.is_exact(); ++part)
        row += codec::row_bytes(c, static_cast<codec::KvRowPart>(part), dim_);
    }
    return row * kKvHeads * depth_;
  }
  // Mean seconds of one layer.
  double attend() {
    const std::uint32_t n_heads = n_heads_;
    std::vector<float> q(n_heads * dim_, 0.1f), out(q.size());
    const KvRowView row{blocks_.data(), 0, depth_ - 1, 1, 0, !scheme_.is_exact()};
    const double begin = now_s(device_.n_threads());
    for (KvLayerView view : layers_) {
      view.rows = {&row, 1};
      device_.ops().attention(device_, {.q = mat_view(q.data(), 1, n_heads * dim_),
                                        .kv = view,
                                        .n_heads = n_heads,
                                        .scale = 0.1f,
                                        .out = mat_view(out.data(), 1, n_heads * dim_)});
    }
    return (now_s(device_.n_threads()) - begin) / static_cast<double>(layers_.size());
  }

 private:
  std::byte* make_plane(std::size_t size_bytes) {
    Result<Buffer> plane = device_.allocate(size_bytes);
    if (!plane) std::exit(1);
    planes_.push_back(*std::move(plane));
    return planes_.back().data();
  }
  KvEncodedSide make_side(const codec::KvCodec& c) {
    KvEncodedSide side{.codec = c, .planes = {}, .row_bytes = {}};
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
      side.row_bytes[part] = codec::row_bytes(c, static_cast<codec::KvRowPart>(part), dim_);
      if (side.row_bytes[part] > 0) side.planes[part] = make_plane(n_rows_ * side.row_bytes[part]);
    }
    return side;
  }
  void add_layer() {
    KvLayerView view;
    view.type = DType::bf16;
    view.n_kv_heads = kKvHeads;
    view.head_dim = dim_;
    view.block_tokens = kBlockTokens;
    if (scheme_.is_exact()) {
      view.k = make_plane(n_rows_ * dim_ * 2);
      view.v = make_plane(n_rows_ * dim_ * 2);
    } else {
      view.k_encoded = make_side(scheme_.k);
      view.v_encoded = make_side(scheme_.v);
    }
    fill(view);
    layers_.push_back(view);
  }
  void fill(KvLayerView view) {
    constexpr std::uint32_t kChunk = 256;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(std::size_t{kChunk} * kKvHeads * dim_);
    for (float& value : values) value = normal(random);
    const MatView rows = mat_view(values.data(), kChunk, kKvHeads * dim_);
    for (std::uint32_t done = 0; done < depth_; done += kChunk) {
      const std::uint32_t n = std::min(kChunk, depth_ - done);
      const KvRowView row{blocks_.data(), 0, done, n, 0, !scheme_.is_exact()};
      view.rows = {&row, 1};
      device_.ops().kv_append(device_, {.k = rows.rows(0, n), .v = rows.rows(0, n), .kv = view});
    }
  }

  ops::Device& device_;
  Scheme scheme_;
  std::uint32_t dim_, depth_, n_heads_;
  std::size_t n_rows_ = 0;
  std::vector<BlockId> blocks_;
  std::vector<Buffer> planes_;
  std::vector<KvLayerView> layers_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const Shape& shape, int n_threads, int n_rounds, std::size_t n_schemes) {
  auto device = backend::cpu::make_cpu_device({.n_threads = n_threads});
  if (!device) return std::fprintf(stderr, "error: %s\n", device.error().what.c_str()), 1;
  std::printf("%s, one query on %u of %u heads of %u, depth %u, %d threads, median of %d rounds\n",
              std::string((*device)->name()).c_str(), kKvHeads, kKvHeads * shape.heads_per_kv,
              shape.dim, shape.depth, n_threads, n_rounds);
  const double read_gb_s = backend::cpu::measure_limits(n_threads).read_gb_s;
  std::printf("reads %.1f GB/s\n%-12s %10s %10s %8s %8s %14s %14s %8s\n", read_gb_s, "scheme", "MB",
              "us", "GB/s", "of reads", "bytes of bf16", "time of bf16", "kept");
  std::vector<Scheme> schemes = all_schemes();
  schemes.resize(std::min(schemes.size(), n_schemes));
  Layers exact(**device, schemes[0], shape);
  for (const Scheme& scheme : schemes) {
    Layers layers(**device, scheme, shape);
    std::vector<double> own, ratios;
    for (int i = 0; i < n_rounds; ++i) {
      const double before = exact.attend(), mine = layers.attend(), after = exact.attend();
      own.push_back(mine);
      ratios.push_back(2 * mine / (before + after));
    }
    const double bytes = static_cast<double>(layers.bytes()), time = median(own);
    const double of_bytes = bytes / static_cast<double>(exact.bytes());
    const double gb_s = bytes / time / 1e9;
    std::printf("%-12s %10.2f %10.0f %8.2f %7.0f%% %14.3f %14.3f %7.0f%%\n", scheme.name.c_str(),
                bytes / 1e6, time * 1e6, gb_s, 100 * gb_s / read_gb_s, of_bytes, median(ratios),
                100 * of_bytes / median(ratios));
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const int dim = number(1, 128), depth = number(2, 8192), n_threads = number(3, 1);
  const int n_rounds = number(4, 9), heads_per_kv = number(5, 1), n_schemes = number(6, 99);
  if (dim < 64 || dim % 64 || depth < 64 || n_threads < 1 || n_rounds < 1 || heads_per_kv < 1 ||
      n_schemes < 1)
    return std::fprintf(stderr,
                        "usage: attention_bench [HEAD_DIM] [DEPTH] [THREADS] [ROUNDS] "
                        "[HEADS_PER_KV_HEAD] [SCHEMES]\n"),
           1;
  const auto as_u32 = [](int value) { return static_cast<std::uint32_t>(value); };
  return kvasir::run({as_u32(dim), as_u32(depth), as_u32(heads_per_kv)}, n_threads, n_rounds,
                     static_cast<std::size_t>(n_schemes));
}
