#include "model/detail/weight_source.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvasir::model {
namespace {

std::vector<std::byte> gather_rows(const codec::WeightMatrix& stored,
                                   std::span<const RowRun> runs,
                                   const std::byte* codec::RowPlanes::*plane,
                                   std::size_t row_bytes) {
  std::vector<std::byte> out;
  for (const RowRun& run : runs) {
    for (std::uint32_t r = run.begin; r < run.begin + run.count; ++r) {
      const std::byte* const row = stored.row(r).*plane;
      out.insert(out.end(), row, row + row_bytes);
    }
  }
  return out;
}

// A matrix's rows in another order, scales and biases with them.
struct GatheredRows {
  GatheredRows(const codec::WeightMatrix& stored, std::span<const RowRun> runs) : matrix(stored) {
    using Planes = codec::RowPlanes;
    const std::size_t scale_bytes = stored.scale_row_bytes();
    codes = gather_rows(stored, runs, &Planes::codes, stored.row_bytes());
    matrix.planes.codes = codes.data();
    matrix.codes_stride = stored.row_bytes();
    matrix.scales_stride = scale_bytes;
    matrix.rows_per_scale = 1;
    matrix.scale_phase = 0;
    if (stored.planes.scales) {
      scales = gather_rows(stored, runs, &Planes::scales, scale_bytes);
      matrix.planes.scales = scales.data();
    }
    if (stored.planes.biases) {
      biases = gather_rows(stored, runs, &Planes::biases, scale_bytes);
      matrix.planes.biases = biases.data();
    }
  }
  std::vector<std::byte> codes, scales, biases;
  codec::WeightMatrix matrix;
};

}  // namespace

WeightSource::WeightSource(const formats::ModelFiles& files,
                           const DecoderConfig& config,
                           ops::Device* device,
                           bool exact_f32,
                           const ProgressSink& progress)
    : files_(files), config_(config), device_(device), exact_f32_(exact_f32), progress_(progress) {
  for (const formats::TensorInfo& tensor : files.tensors()) total_bytes_ += tensor.size_bytes;
  has_plus_one_ = config.norm_plus_one && !files.config().bool_or("kvasir_norms_have_one", false);
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::matrix(const std::string& name,
                                                                std::uint32_t n_out,
                                                                std::uint32_t n_in,
                                                                bool exact_f32,
                                                                bool may_split) {
  KVASIR_TRY(const codec::WeightMatrix stored, files_.matrix(name, n_out, n_in));
  KVASIR_TRY(auto packed, pack(stored, {.exact_f32 = exact_f32, .may_split = may_split}));
  done_with(stored);
  return packed;
}

Result<Linear> WeightSource::linear(const std::string& name,
                                    std::uint32_t n_out,
                                    std::uint32_t n_in,
                                    bool has_bias) {
  Linear out;
  KVASIR_TRY(out.weight, matrix(name + ".weight", n_out, n_in, exact_f32_, /*may_split=*/true));
  if (has_bias) {
    KVASIR_TRY(out.bias, vector(name + ".bias", n_out));
  }
  return out;
}

Status WeightSource::append(SideBySide& parts,
                            const std::string& name,
                            std::uint32_t n_out,
                            std::uint32_t n_in,
                            bool has_bias) {
  KVASIR_TRY(Linear part, linear(name, n_out, n_in, has_bias));
  parts.push_back(std::move(part));
  return {};
}

// Where rows are not runs of bytes (GPTQ, AWQ), each run becomes a matrix of its own.
Status WeightSource::append_runs(SideBySide& parts,
                                 const std::string& name,
                                 std::uint32_t n_in,
                                 bool has_bias,
                                 std::span<const RowRun> runs) {
  std::uint32_t n_out = 0;
  for (const RowRun& run : runs) n_out += run.count;
  KVASIR_TRY(const codec::WeightMatrix stored, files_.matrix(name + ".weight", n_out, n_in));
  std::vector<float> bias;
  if (has_bias) {
    KVASIR_TRY(const std::vector<float> all, files_.vector(name + ".bias", n_out));
    for (const RowRun& run : runs)
      bias.insert(bias.end(), all.begin() + run.begin, all.begin() + run.begin + run.count);
  }
  if (is_rehearsal_) return {};
  if (stored.codes_stride > 0) {
    const GatheredRows gathered(stored, runs);
    KVASIR_TRY(auto packed, pack(gathered.matrix));
    KVASIR_TRY(Vector settled, settle(bias));
    parts.push_back({.weight = std::move(packed), .bias = std::move(settled)});
  } else {
    std::size_t at = 0;
    for (const RowRun& run : runs) {
      KVASIR_TRY(auto packed, pack(stored.rows(run.begin, run.count)));
      Linear& part = parts.emplace_back();
      part.weight = std::move(packed);
      if (has_bias) {
        KVASIR_TRY(part.bias, settle(std::span(bias).subspan(at, run.count)));
      }
      at += run.count;
    }
  }
  done_with(stored);
  return {};
}

Result<Vector> WeightSource::vector(const std::string& name, std::size_t n) {
  KVASIR_TRY(const std::vector<float> values, files_.vector(name, n));
  return settle(values);
}

// In rehearsal nothing is kept.
Result<Vector> WeightSource::settle(std::span<const float> values) {
  if (is_rehearsal_) return Vector{};
  return Vector::make(*device_, values);
}

Result<Vector> WeightSource::rms_weight(const std::string& name, std::uint32_t n) {
  KVASIR_TRY(std::vector<float> out, files_.vector(name + ".weight", n));
  if (has_plus_one_) {
    for (float& w : out) w += 1.0f;
  }
  if (config_.checks_norm_means) {
    constexpr double kLeast = 0.05, kMost = 20.0;
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / n;
    if (!(mean >= kLeast && mean <= kMost)) {
      return invalid(files_.path().string() + ": tensor '" + name + ".weight' has a mean of " +
                     std::to_string(mean) +
                     " as a norm's weight: norms and convolutions are of different dialects");
    }
  }
  return settle(out);
}

Result<Norm> WeightSource::norm(const std::string& prefix, std::string_view name) {
  Norm out;
  if (name.empty()) return out;
  const std::string whole = prefix + std::string(name);
  KVASIR_TRY(out.weight, rms_weight(whole, config_.hidden));
  if (config_.norm_bias) {
    KVASIR_TRY(out.bias, vector(whole + ".bias", config_.hidden));
  }
  return out;
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::pack(const codec::WeightMatrix& rows) {
  return pack(rows, {.exact_f32 = exact_f32_});
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::pack(const codec::WeightMatrix& rows,
                                                              ops::PackOptions options) {
  if (is_rehearsal_) return std::unique_ptr<ops::PackedMatrix>();
  return device_->pack(rows, options);
}

void WeightSource::done_with(const codec::WeightMatrix& stored) {
  if (is_rehearsal_) return;
  files_.release_pages(stored);
  const std::size_t planes = (stored.planes.scales ? 1u : 0u) + (stored.planes.biases ? 1u : 0u);
  done_bytes_ += stored.n_out * (stored.codes_stride + planes * stored.scales_stride);
  if (!progress_) return;
  progress_({.stage = "repacking weights",
             .done = std::min(done_bytes_, total_bytes_),
             .total = total_bytes_});
}

}  // namespace kvasir::model
