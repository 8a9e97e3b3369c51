// Latent attention's matrices. A file's kv_b_proj expands a latent row into each head's key and
// value; absorbed, its key half works on the query and its value half on the result
// (DeepSeek-V2, 2024, §2.1).
#include "model/detail/weight_source.h"

namespace kvasir::model {
namespace {

// A matrix decoded to f32 and turned round: elements are those of the stored one, exactly
// (docs/numerics.md).
codec::WeightMatrix transposed(const codec::WeightMatrix& stored, std::vector<float>& memory) {
  std::vector<float> row(stored.n_in);
  memory.resize(std::size_t{stored.n_in} * stored.n_out);
  for (std::size_t o = 0; o < stored.n_out; ++o) {
    stored.decode(o, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) memory[i * stored.n_out + o] = row[i];
  }
  codec::WeightMatrix out;
  out.type = *codec::find_weight_type("f32");
  out.n_out = stored.n_in;
  out.n_in = stored.n_out;
  out.planes.codes = reinterpret_cast<const std::byte*>(memory.data());
  out.codes_stride = stored.n_out * sizeof(float);
  return out;
}

class LatentLoader {
 public:
  LatentLoader(WeightSource& source, const LatentAttentionSpec& latent, std::string prefix)
      : source_(source), a_(latent), prefix_(std::move(prefix)) {}

  Result<LatentWeights> load() {
    const std::uint32_t hidden = source_.config().hidden;
    if (a_.q_rank) {
      KVASIR_TRY(out_.q_down, source_.linear(prefix_ + "q_a_proj", a_.q_rank, hidden, a_.bias));
      KVASIR_TRY(out_.q_norm, source_.rms_weight(prefix_ + "q_a_layernorm", a_.q_rank));
    }
    KVASIR_TRY(out_.q, source_.linear(prefix_ + (a_.q_rank ? "q_b_proj" : "q_proj"), a_.q_width(),
                                      a_.q_rank ? a_.q_rank : hidden, /*has_bias=*/false));
    KVASIR_TRY(out_.kv,
               source_.linear(prefix_ + "kv_a_proj_with_mqa", a_.row_dim(), hidden, a_.bias));
    KVASIR_TRY(out_.kv_norm, source_.rms_weight(prefix_ + "kv_a_layernorm", a_.kv_rank));
    KVASIR_TRY_DO(source_.files().has(prefix_ + "embed_q.weight") ? load_absorbed()
                                                                  : load_expansion());
    KVASIR_TRY(out_.out, source_.linear(prefix_ + "o_proj", hidden, a_.v_width(), a_.bias));
    if (a_.has_own_index()) {
      KVASIR_TRY(out_.index, load_index(*a_.index));
    }
    return std::move(out_);
  }

 private:
  // kv_b_proj: of each head the rows of its key, then those of its value.
  Status load_expansion() {
    const std::uint32_t head_rows = a_.nope_dim + a_.v_dim;
    KVASIR_TRY(
        const codec::WeightMatrix stored,
        source_.files().matrix(prefix_ + "kv_b_proj.weight", a_.n_heads * head_rows, a_.kv_rank));
    if (source_.is_rehearsal()) return {};
    std::vector<float> memory;
    for (std::uint32_t h = 0; h < a_.n_heads; ++h) {
      const std::uint32_t first = h * head_rows;
      KVASIR_TRY_DO(pack(transposed(stored.rows(first, a_.nope_dim), memory), out_.into_latent));
      KVASIR_TRY_DO(pack(stored.rows(first + a_.nope_dim, a_.v_dim), out_.out_of_latent));
    }
    source_.done_with(stored);
    return {};
  }

  // Converted files hold both halves as they are used, as stacks of heads.
  Status load_absorbed() {
    KVASIR_TRY_DO(load_stack("embed_q.weight", a_.kv_rank, a_.nope_dim, out_.into_latent));
    return load_stack("unembed_out.weight", a_.v_dim, a_.kv_rank, out_.out_of_latent);
  }

  Status load_stack(std::string_view name,
                    std::uint32_t n_out,
                    std::uint32_t n_in,
                    std::vector<const ops::PackedMatrix*>& heads) {
    KVASIR_TRY(const formats::ExpertMatrices stored,
               source_.files().stack(prefix_ + std::string(name), a_.n_heads, n_out, n_in));
    if (source_.is_rehearsal()) return {};
    for (const codec::WeightMatrix& head : stored) {
      KVASIR_TRY_DO(pack(head, heads));
      source_.done_with(head);
    }
    return {};
  }

  Status pack(const codec::WeightMatrix& rows, std::vector<const ops::PackedMatrix*>& heads) {
    KVASIR_TRY(auto packed, source_.pack(rows));
    heads.push_back(packed.get());
    out_.matrices.push_back(std::move(packed));
    return {};
  }

  Result<IndexWeights> load_index(const IndexSpec& index) {
    IndexWeights out;
    const std::string prefix = prefix_ + "indexer.";
    const std::uint32_t hidden = source_.config().hidden;
    KVASIR_TRY(out.q, source_.linear(prefix + "wq_b", index.n_heads * index.dim, a_.q_rank,
                                     /*has_bias=*/false));
    KVASIR_TRY(out.k, source_.linear(prefix + "wk", index.dim, hidden, /*has_bias=*/false));
    KVASIR_TRY(out.k_norm.weight, source_.vector(prefix + "k_norm.weight", index.dim));
    KVASIR_TRY(out.k_norm.bias, source_.vector(prefix + "k_norm.bias", index.dim));
    KVASIR_TRY(out.head_weights.weight, source_.matrix(prefix + "weights_proj.weight",
                                                       index.n_heads, hidden, /*exact_f32=*/true));
    return out;
  }

  WeightSource& source_;
  const LatentAttentionSpec& a_;
  std::string prefix_;
  LatentWeights out_;
};

std::uint64_t size_of_vector(const Vector& v) { return v.size() * sizeof(float); }
std::uint64_t size_of_linear(const Linear& l) {
  return (l.weight ? l.weight->size_bytes() : 0) + size_of_vector(l.bias);
}

}  // namespace

Result<LatentWeights> load_latent(WeightSource& source,
                                  const LatentAttentionSpec& latent,
                                  const std::string& prefix) {
  return LatentLoader(source, latent, prefix).load();
}

std::uint64_t size_bytes(const LatentWeights& weights) {
  std::uint64_t out = size_of_vector(weights.q_norm) + size_of_vector(weights.kv_norm);
  for (const Linear* linear : {&weights.q_down, &weights.q, &weights.kv, &weights.out})
    out += size_of_linear(*linear);
  for (const auto& matrix : weights.matrices) out += matrix->size_bytes();
  if (!weights.index) return out;
  for (const Linear* linear : {&weights.index->q, &weights.index->k, &weights.index->head_weights})
    out += size_of_linear(*linear);
  return out + size_of_vector(weights.index->k_norm.weight) +
         size_of_vector(weights.index->k_norm.bias);
}

}  // namespace kvasir::model
