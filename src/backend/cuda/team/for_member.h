// Arguments of an op as one member of a team sees them: each address of device memory is replaced
// by the member's own. each(args, see) names all of them.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/team/team_device.h"

namespace kvasir::backend::cuda {

// Replaces addresses.
class ForMember {
 public:
  ForMember(TeamDevice& team, std::size_t member) noexcept : team_(team), member_(member) {}

  template <class T>
  void operator()(T*& address) const noexcept {
    address = team_.memory().at(address, member_);
  }
  template <class T>
  void operator()(BasicMatView<T>& m) const noexcept {
    (*this)(m.data);
  }
  template <class T>
  void operator()(std::span<T>& values) const noexcept {
    values = {team_.memory().at(values.data(), member_), values.size()};
  }
  void operator()(const ops::PackedMatrix*& m) const noexcept {
    m = team_matrix(m).parts[member_].get();
  }
  // Of split planes a member has its heads alone.
  void operator()(KvLayerView& kv) const noexcept {
    std::byte* const any = kv.k ? kv.k : kv.k_encoded.planes[0];
    const TeamMemory::Region* const region = team_.memory().find(any);
    if (region && region->is_split()) kv.n_kv_heads /= static_cast<std::uint32_t>(team_.size());
    (*this)(kv.k);
    (*this)(kv.v);
    for (KvEncodedSide* side : {&kv.k_encoded, &kv.v_encoded})
      for (std::byte*& plane : side->planes) (*this)(plane);
  }
  void operator()(LatentLayerView& kv) const noexcept {
    (*this)(kv.latent);
    (*this)(kv.index);
  }

 private:
  TeamDevice& team_;
  std::size_t member_;
};

// Makes whole what an op reads or writes.
class Settle {
 public:
  explicit Settle(TeamDevice& team) noexcept : team_(team) {}
  template <class T>
  void operator()(BasicMatView<T>& m) const noexcept {
    team_.settle(m);
  }
  template <class T>
  void operator()(T&) const noexcept {}

 private:
  TeamDevice& team_;
};

template <class See>
void each(ops::EmbedArgs& a, const See& see) {
  see(a.table), see(a.picked), see(a.out);
}
template <class See>
void each(ops::RmsNormArgs& a, const See& see) {
  see(a.x), see(a.weight), see(a.out);
}
template <class See>
void each(ops::LayerNormArgs& a, const See& see) {
  see(a.x), see(a.weight), see(a.bias), see(a.out);
}
template <class See>
void each(ops::LinearArgs& a, const See& see) {
  see(a.x), see(a.weight), see(a.bias), see(a.out);
}
template <class See>
void each(ops::RopeArgs& a, const See& see) {
  see(a.x), see(a.cos), see(a.sin);
}
template <class See>
void each(ops::KvAppendArgs& a, const See& see) {
  see(a.k), see(a.v), see(a.kv);
}
template <class See>
void each(ops::KvConvertArgs& a, const See& see) {
  see(a.kv);
}
template <class See>
void each(ops::AttentionArgs& a, const See& see) {
  see(a.q), see(a.kv), see(a.sinks), see(a.out);
}
template <class See>
void each(ops::ActMulArgs& a, const See& see) {
  see(a.gate), see(a.up), see(a.out);
}
template <class See>
void each(ops::GateRowsArgs& a, const See& see) {
  see(a.x), see(a.gate);
}
template <class See>
void each(ops::AddScaledArgs& a, const See& see) {
  see(a.x), see(a.y);
}
template <class See>
void each(ops::ScaleArgs& a, const See& see) {
  see(a.x);
}
template <class See>
void each(ops::GatherRowsArgs& a, const See& see) {
  see(a.x), see(a.out);
}
template <class See>
void each(ops::L2NormArgs& a, const See& see) {
  see(a.x), see(a.out);
}
template <class See>
void each(ops::DeltaGatesArgs& a, const See& see) {
  see(a.a), see(a.b), see(a.a_log), see(a.dt_bias), see(a.decay), see(a.beta);
}
template <class See>
void each(ops::LatentAppendArgs& a, const See& see) {
  see(a.latent), see(a.rope_key), see(a.index_key), see(a.kv);
}
template <class See>
void each(ops::LatentAttentionArgs& a, const See& see) {
  see(a.q_latent), see(a.q_rope), see(a.kv), see(a.selected), see(a.out);
}
template <class See>
void each(ops::IndexSelectArgs& a, const See& see) {
  see(a.q), see(a.weights), see(a.kv), see(a.selected);
}
template <class See>
void each(ops::MoeRouteArgs& a, const See& see) {
  see(a.logits), see(a.selection_bias), see(a.expert_scales), see(a.experts), see(a.weights);
}
template <class See>
void each(ops::AddNormArgs& a, const See& see) {
  see(a.x), see(a.y), see(a.weight), see(a.out);
}
template <class See>
void each(ops::QueryKeyArgs& a, const See& see) {
  see(a.q), see(a.k), see(a.v), see(a.q_norm), see(a.k_norm), see(a.cos), see(a.sin), see(a.kv);
}

template <class See>
void each(ops::PickArgs& a, const See& see) {
  see(a.scores), see(a.picked);
}

}  // namespace kvasir::backend::cuda
