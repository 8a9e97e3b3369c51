// Gated MLPs and experts, however a file fuses and stacks them.
#include <cstring>

#include "model/detail/weight_source.h"

namespace kvasir::model {
namespace {

using ExpertPart = const ops::PackedMatrix* ops::ExpertWeights::*;
using ExpertBias = const float* ops::ExpertWeights::*;

// Outputs first, first + step, … of a stored matrix.
struct Pick {
  std::uint32_t first = 0;
  std::uint32_t step = 1;
  std::uint32_t count = 0;
};

codec::WeightMatrix pick_rows(const codec::WeightMatrix& stored, const Pick& pick) {
  return pick.step == 1 ? stored.rows(pick.first, pick.count) : stored.every(pick.step, pick.first);
}

// The same of a dense matrix stored [n_in, n_out], as rows in `memory`.
codec::WeightMatrix pick_columns(const codec::WeightMatrix& stored,
                                 const Pick& pick,
                                 std::vector<std::byte>& memory) {
  const std::size_t size = codec::info(stored.type).block_bytes;
  const std::uint32_t n_in = stored.n_out;
  memory.resize(std::size_t{pick.count} * n_in * size);
  for (std::uint32_t i = 0; i < n_in; ++i) {
    const std::byte* const row = stored.row(i).codes;
    for (std::size_t o = 0; o < pick.count; ++o)
      std::memcpy(&memory[(o * n_in + i) * size], row + (pick.first + o * pick.step) * size, size);
  }
  codec::WeightMatrix out = stored;
  out.n_out = pick.count;
  out.n_in = n_in;
  out.planes = {};
  out.planes.codes = memory.data();
  out.codes_stride = n_in * size;
  return out;
}

// Loads the experts of one layer into a bank.
class ExpertLoader {
 public:
  ExpertLoader(WeightSource& source, const MoeSpec& moe, std::string prefix, MoeWeights& out)
      : source_(source), moe_(moe), prefix_(std::move(prefix)), out_(out) {}

  Status load() {
    const LayerNames& names = source_.config().names;
    const std::uint32_t hidden = source_.config().hidden, ff = moe_.intermediate;
    const Part gate{&ops::ExpertWeights::gate, &ops::ExpertWeights::gate_bias, {0, 1, ff}};
    const Part up{&ops::ExpertWeights::up, &ops::ExpertWeights::up_bias, {0, 1, ff}};
    const Part down{&ops::ExpertWeights::down, &ops::ExpertWeights::down_bias, {0, 1, hidden}};
    if (moe_.layout == ExpertLayout::apart) {
      KVASIR_TRY_DO(load(names.expert_gate, ff, hidden, {gate}));
      KVASIR_TRY_DO(load(names.expert_up, ff, hidden, {up}));
    } else {
      const bool in_turn = moe_.layout == ExpertLayout::fused_interleaved;
      Part first = gate, second = up;
      first.pick = {0, in_turn ? 2u : 1u, ff};
      second.pick = {in_turn ? 1u : ff, in_turn ? 2u : 1u, ff};
      KVASIR_TRY_DO(load(names.expert_gate_up, 2 * ff, hidden, {first, second}));
    }
    return load(names.expert_down, hidden, ff, {down});
  }

 private:
  struct Part {
    ExpertPart weight;
    ExpertBias bias;
    Pick pick;
  };

  // One stored stack [n_experts, n_out, n_in] and the parts of each expert that it holds.
  Status load(std::string_view name,
              std::uint32_t n_out,
              std::uint32_t n_in,
              const std::vector<Part>& parts) {
    const LayerNames& names = source_.config().names;
    const std::string stem = prefix_ + std::string(name);
    const std::string weight = stem + std::string(names.expert_suffix);
    // Quantized rows run along the inputs, whatever the dense form of the file.
    const formats::TensorInfo* info = source_.files().find(weight);
    const bool is_dense =
        !info || info->type == "bf16" || info->type == "f16" || info->type == "f32";
    const bool inputs_first = moe_.inputs_first && is_dense;
    KVASIR_TRY(const formats::ExpertMatrices stored,
               source_.files().stack(weight, moe_.n_experts, inputs_first ? n_in : n_out,
                                     inputs_first ? n_out : n_in));
    if (moe_.bias) {
      const std::string bias = stem + std::string(names.expert_bias_suffix);
      KVASIR_TRY_DO(load_biases(bias, n_out, parts));
    }
    for (std::size_t e = 0; e < stored.size(); ++e) {
      for (const Part& part : parts) KVASIR_TRY_DO(pack(stored[e], part, inputs_first, e));
      source_.done_with(stored[e]);
    }
    return {};
  }

  Status pack(const codec::WeightMatrix& stored,
              const Part& part,
              bool inputs_first,
              std::size_t expert) {
    if (source_.is_rehearsal()) return {};
    KVASIR_TRY(auto packed, source_.pack(inputs_first ? pick_columns(stored, part.pick, transposed_)
                                                      : pick_rows(stored, part.pick)));
    out_.bank[expert].*part.weight = packed.get();
    out_.matrices.push_back(std::move(packed));
    return {};
  }

  Status load_biases(const std::string& name, std::uint32_t n_out, const std::vector<Part>& parts) {
    KVASIR_TRY(const std::vector<float> stored,
               source_.numbers(name, std::size_t{moe_.n_experts} * n_out));
    for (const Part& part : parts) {
      std::vector<float> picked;
      for (std::size_t e = 0; e < moe_.n_experts; ++e) {
        for (std::size_t o = 0; o < part.pick.count; ++o)
          picked.push_back(stored[e * n_out + part.pick.first + o * part.pick.step]);
      }
      KVASIR_TRY(Vector settled, source_.settle(picked));
      const float* const first = out_.expert_biases.emplace_back(std::move(settled)).data();
      for (std::size_t e = 0; e < moe_.n_experts; ++e)
        out_.bank[e].*part.bias = first + e * part.pick.count;
    }
    return {};
  }

  WeightSource& source_;
  const MoeSpec& moe_;
  std::string prefix_;
  MoeWeights& out_;
  std::vector<std::byte> transposed_;
};

}  // namespace

Result<MlpWeights> load_mlp(WeightSource& source, const MlpSpec& mlp, const std::string& prefix) {
  MlpWeights out;
  const std::uint32_t hidden = source.config().hidden;
  const LayerNames& names = source.config().names;
  if (!mlp.is_gated) {
    KVASIR_TRY_DO(source.append(out.gate_up, prefix + "c_fc", mlp.intermediate, hidden, mlp.bias));
    KVASIR_TRY(out.down, source.linear(prefix + "c_proj", hidden, mlp.intermediate, mlp.bias));
    KVASIR_TRY(out.ones, source.settle(std::vector<float>(mlp.intermediate, 1.0f)));
    return out;
  }
  if (mlp.fused_gate_up) {
    KVASIR_TRY_DO(source.append(out.gate_up, prefix + "gate_up_proj", 2 * mlp.intermediate, hidden,
                                mlp.bias));
  } else {
    KVASIR_TRY_DO(source.append(out.gate_up, prefix + std::string(names.gate), mlp.intermediate,
                                hidden, mlp.bias));
    KVASIR_TRY_DO(source.append(out.gate_up, prefix + std::string(names.up), mlp.intermediate,
                                hidden, mlp.bias));
  }
  KVASIR_TRY(out.down,
             source.linear(prefix + std::string(names.down), hidden, mlp.intermediate, mlp.bias));
  return out;
}

Result<MoeWeights> load_moe(WeightSource& source, const MoeSpec& moe, const std::string& prefix) {
  MoeWeights out;
  const LayerNames& names = source.config().names;
  const std::string router = prefix + std::string(names.router);
  KVASIR_TRY(out.router.weight, source.matrix(router + ".weight", moe.n_experts,
                                              source.config().hidden, /*exact_f32=*/true));
  if (moe.bias) {
    KVASIR_TRY(out.router.bias, source.vector(router + ".bias", moe.n_experts));
  }
  if (moe.has_selection_bias) {
    KVASIR_TRY(out.selection_bias,
               source.vector(router + ".e_score_correction_bias", moe.n_experts));
  }
  if (moe.router_norm) {
    KVASIR_TRY(out.router_scale,
               source.vector(prefix + std::string(names.router_scale), source.config().hidden));
  }
  if (moe.expert_scales) {
    KVASIR_TRY(out.expert_scales,
               source.vector(prefix + std::string(names.expert_scales), moe.n_experts));
  }
  out.bank.resize(moe.n_experts);
  KVASIR_TRY_DO(ExpertLoader(source, moe, prefix, out).load());
  if (moe.shared_intermediate) {
    const MlpSpec shared{.intermediate = moe.shared_intermediate, .activation = moe.activation};
    KVASIR_TRY(out.shared,
               load_mlp(source, shared, prefix + std::string(names.shared_expert) + "."));
  }
  if (moe.shared_gate) {
    KVASIR_TRY(out.shared_gate, source.linear(prefix + std::string(names.shared_gate), 1,
                                              source.config().hidden, /*has_bias=*/false));
  }
  return out;
}

}  // namespace kvasir::model
