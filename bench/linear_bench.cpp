// Matrix products alone, per weight format, instruction set and number of rows: bytes a second of
// weights, beside the plain read rate of the same minute, and operations a second, beside that of
// plain multiply-adds. Instruction sets are interleaved. With one thread, times are the thread's
// own, which other work on the machine disturbs less.
// "x" is what the same rows take with a matrix of one panel: x made ready, threads called.
//   linear_bench [K] [N] [THREADS] [ROUNDS] [ISA,ISA…] [FORMAT,FORMAT…] [MB] [ROWS,ROWS…]
// An instruction set with "+int8" behind it takes 8-bit activations.
// MB of weights are walked in turn: more than the caches hold, so that they come from memory, as in
// a model. Threads of the set that waits turn for a moment: with as many as CPUs, run one set.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/limits.h"
#include "base/half.h"
#include "codec/weight_matrix.h"
#include "ops/op_table.h"

namespace kvasir {
namespace {

using backend::cpu::Isa;

double now_s(int n_threads) {
  timespec t{};
  clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Random codes with small scales; blocks of GGUF types begin with an f16 scale (and offset).
struct Stored {
  Stored(const std::string& name, std::uint32_t n_out, std::uint32_t n_in) {
    m.type = *codec::find_weight_type(name);
    m.n_out = n_out;
    m.n_in = n_in;
    const codec::WeightTypeInfo& info = codec::info(m.type);
    m.codes_stride = n_in / info.block * info.block_bytes;
    codes.resize(m.codes_stride * n_out);
    std::mt19937 random(1);
    for (std::byte& b : codes) b = static_cast<std::byte>(random());
    m.planes.codes = codes.data();
    if (info.scale_plane == codec::ScalePlane::floats) {
      m.scales_stride = n_in / info.group * 2;
      const std::uint16_t scale = to_bf16(0.01f).bits;
      scales.assign(std::size_t{n_out} * n_in / info.group, scale);
      m.planes.scales = m.planes.biases = reinterpret_cast<std::byte*>(scales.data());
      m.planes.scale_type = codec::ScaleType::bf16;
      return;
    }
    const std::uint16_t scale = info.quantized ? to_f16(0.01f).bits : to_bf16(0.01f).bits;
    const std::size_t n_halves = info.has_bias ? 2 : 1;
    for (std::size_t at = 0; at < codes.size(); at += info.block_bytes) {
      for (std::size_t i = 0; i < n_halves; ++i) std::memcpy(&codes[at + 2 * i], &scale, 2);
    }
  }
  codec::WeightMatrix m;
  std::vector<std::byte> codes;
  std::vector<std::uint16_t> scales;
};

struct Candidate {
  std::string isa;
  std::unique_ptr<ops::Device> device;
  std::vector<std::unique_ptr<ops::PackedMatrix>> weights;
  std::unique_ptr<ops::PackedMatrix> one_panel;
  std::size_t next = 0;
  std::vector<double> seconds, seconds_of_x;
};

double multiply(Candidate& c,
                const ops::PackedMatrix& w,
                const std::vector<float>& x,
                std::uint32_t n_rows,
                int n_threads) {
  const std::size_t n_floats = std::size_t{n_rows} * w.n_out();
  static Buffer memory;  // as a model's: aligned, whole pages
  if (memory.size_bytes() < n_floats * sizeof(float))
    memory = *c.device->allocate(n_floats * sizeof(float));
  float* const out = memory.f32();
  const double begin = now_s(n_threads);
  c.device->ops().linear(*c.device, {.x = {x.data(), n_rows, w.n_in(), w.n_in()},
                                     .weight = &w,
                                     .out = mat_view(out, n_rows, w.n_out())});
  return now_s(n_threads) - begin;
}

double tenth_part(std::vector<double>& seconds) {  // sorts them
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 10];
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

// "avx512" or "avx512+int8".
std::pair<std::string, backend::cpu::Activations> mode_of(const std::string& text) {
  const std::size_t at = text.find("+int8");
  using enum backend::cpu::Activations;
  return {text.substr(0, at), at == std::string::npos ? exact : int8};
}

struct Options {
  std::uint32_t n_in, n_out;
  int n_threads, n_rounds;
  std::size_t working_set;  // bytes
  std::vector<std::string> isas, formats;
  std::vector<std::uint32_t> rows;
};

void measure(const Options& o, const std::string& format, const backend::cpu::Limits& limits) {
  const Stored stored(format, o.n_out, o.n_in);
  std::vector<Candidate> candidates;
  for (const std::string& isa : o.isas) {
    const auto [name, activations] = mode_of(isa);
    const auto chosen = backend::cpu::parse_isa(name);
    if (!chosen || !backend::cpu::cpu_supports(*chosen)) continue;
    Candidate c;
    c.isa = isa;
    c.device = *backend::cpu::make_cpu_device(
        {.n_threads = o.n_threads, .isa = *chosen, .activations = activations});
    do {
      c.weights.push_back(*c.device->pack(stored.m, {}));
    } while (c.weights.size() * c.weights[0]->size_bytes() < o.working_set / o.isas.size());
    codec::WeightMatrix panel = stored.m;
    panel.n_out = 32;
    c.one_panel = *c.device->pack(panel, {});
    candidates.push_back(std::move(c));
  }
  for (const std::uint32_t n_rows : o.rows) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(std::size_t{n_rows} * o.n_in);
    for (float& v : x) v = normal(random);
    const int n = n_rows >= 64 ? std::max(3, o.n_rounds / 8) : o.n_rounds;
    for (Candidate& c : candidates) c.seconds.clear(), c.seconds_of_x.clear();
    for (int i = 0; i < n; ++i)
      for (Candidate& c : candidates) {
        const ops::PackedMatrix& w = *c.weights[c.next++ % c.weights.size()];
        c.seconds.push_back(multiply(c, w, x, n_rows, o.n_threads));
        c.seconds_of_x.push_back(multiply(c, *c.one_panel, x, n_rows, o.n_threads));
      }
    for (Candidate& c : candidates) {
      const double best = tenth_part(c.seconds), middle = c.seconds[c.seconds.size() / 2];
      const double gb = static_cast<double>(c.weights[0]->size_bytes()) / 1e9,
                   gflop = 2e-9 * n_rows * o.n_in * o.n_out;
      std::printf(
          "%-12s %-11s %4u rows  %8.1f us (median %8.1f, x %7.1f)  %6.2f GB/s %4.0f %%  %7.1f "
          "GFLOP/s %4.0f "
          "%%\n",
          format.c_str(), c.isa.c_str(), n_rows, best * 1e6, middle * 1e6,
          tenth_part(c.seconds_of_x) * 1e6, gb / best, 100 * gb / best / limits.read_gb_s,
          gflop / best, 100 * gflop / best / limits.fma_gflop_s);
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const auto text = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
  kvasir::Options o{static_cast<std::uint32_t>(number(1, 1024)),
                    static_cast<std::uint32_t>(number(2, 3072)),
                    number(3, 1),
                    number(4, 60),
                    static_cast<std::size_t>(number(7, 160)) << 20,
                    kvasir::split(text(5, "avx512,amx")),
                    kvasir::split(text(6, "bf16,q8_0,q4_0,affine8g64,affine4g64")),
                    {}};
  for (const std::string& rows : kvasir::split(text(8, "1,2,4,8,16,64,512")))
    o.rows.push_back(static_cast<std::uint32_t>(std::max(1, std::atoi(rows.c_str()))));
  if (o.n_in == 0 || o.n_in % 256 || o.n_out == 0 || o.n_threads < 1 || o.n_rounds < 1 ||
      number(7, 1) < 1)
    return std::fprintf(
               stderr,
               "usage: linear_bench [K] [N] [THREADS] [ROUNDS] [ISAS] [FORMATS] [MB] [ROWS]\n"),
           1;
  const auto limits = kvasir::backend::cpu::measure_limits(o.n_threads);
  std::printf("K %u, N %u, %d threads; read %.1f GB/s, f32 FMA %.0f GFLOP/s\n", o.n_in, o.n_out,
              o.n_threads, limits.read_gb_s, limits.fma_gflop_s);
  for (const std::string& format : o.formats) kvasir::measure(o, format, limits);
}
