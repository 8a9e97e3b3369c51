#include "kvasir/verify/planted_fault.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/wrapped_device.h"

namespace kvasir::verify {
namespace {

class RopePosition final : public PlantedDevice {
 public:
  explicit RopePosition(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.rope = [](ops::Device& device, const ops::RopeArgs& args) noexcept {
      auto& self = static_cast<RopePosition&>(device);
      self.took_place_ = true;
      const bool is_query = std::exchange(self.next_is_query_, !self.next_is_query_);
      std::vector<std::uint32_t> positions(args.positions.begin(), args.positions.end());
      if (is_query) {
        for (auto& p : positions) ++p;
      }
      ops::RopeArgs wrong = args;
      wrong.positions = positions;
      self.inner().ops().rope(self.inner(), wrong);
    };
  }

 private:
  bool next_is_query_ = true;  // graphs rope the queries, then the keys
};

class SkippedNormWeight final : public PlantedDevice {
 public:
  explicit SkippedNormWeight(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.rms_norm = [](ops::Device& device, const ops::RmsNormArgs& args) noexcept {
      auto& self = static_cast<SkippedNormWeight&>(device);
      self.took_place_ = true;
      if (!self.skipped_) self.skipped_ = args.weight;
      ops::RmsNormArgs wrong = args;
      if (args.weight == self.skipped_) wrong.weight = nullptr;
      self.inner().ops().rms_norm(self.inner(), wrong);
    };
    table_.layer_norm = [](ops::Device& device, const ops::LayerNormArgs& args) noexcept {
      auto& self = static_cast<SkippedNormWeight&>(device);
      self.took_place_ = true;
      if (!self.skipped_) self.skipped_ = args.weight;
      const std::vector<float> ones(args.x.n_cols, 1.0f);
      ops::LayerNormArgs wrong = args;
      if (args.weight == self.skipped_) wrong.weight = ones.data();
      self.inner().ops().layer_norm(self.inner(), wrong);
    };
  }

 private:
  const float* skipped_ = nullptr;
};

std::vector<float> swap_first_heads(ConstMatView x, std::uint32_t head_dim) {
  std::vector<float> out(std::size_t{x.n_rows} * x.n_cols);
  for (std::uint32_t r = 0; r < x.n_rows; ++r) {
    float* row = out.data() + std::size_t{r} * x.n_cols;
    std::copy(x.row(r), x.row(r) + x.n_cols, row);
    std::swap_ranges(row, row + head_dim, row + head_dim);
  }
  return out;
}

// Halves of a latent row change places: it has one key head, whose values are its keys.
void append_swapped_halves(ops::Device& inner, const ops::LatentAppendArgs& args) noexcept {
  const std::uint32_t half = args.latent.n_cols / 2;
  std::vector<float> latent = swap_first_heads(args.latent, half);
  ops::LatentAppendArgs wrong = args;
  wrong.latent = mat_view(latent.data(), args.latent.n_rows, args.latent.n_cols);
  inner.ops().latent_append(inner, wrong);
}

class SwappedKvHead final : public PlantedDevice {
 public:
  explicit SwappedKvHead(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.kv_append = [](ops::Device& device, const ops::KvAppendArgs& args) noexcept {
      auto& self = static_cast<SwappedKvHead&>(device);
      self.took_place_ = true;
      ops::Device& inner_device = self.inner();
      if (args.kv.n_kv_heads < 2) {
        ops::KvAppendArgs wrong = args;
        std::swap(wrong.k, wrong.v);
        return inner_device.ops().kv_append(inner_device, wrong);
      }
      std::vector<float> k = swap_first_heads(args.k, args.kv.head_dim),
                         v = swap_first_heads(args.v, args.kv.head_dim);
      ops::KvAppendArgs wrong = args;
      wrong.k = mat_view(k.data(), args.k.n_rows, args.k.n_cols);
      wrong.v = mat_view(v.data(), args.v.n_rows, args.v.n_cols);
      inner_device.ops().kv_append(inner_device, wrong);
    };
    table_.latent_append = [](ops::Device& device, const ops::LatentAppendArgs& args) noexcept {
      auto& self = static_cast<SwappedKvHead&>(device);
      self.took_place_ = true;
      append_swapped_halves(self.inner(), args);
    };
  }
};

class NegatedIndexKey final : public PlantedDevice {
 public:
  explicit NegatedIndexKey(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.latent_append = [](ops::Device& device, const ops::LatentAppendArgs& args) noexcept {
      auto& self = static_cast<NegatedIndexKey&>(device);
      self.took_place_ = true;
      ops::Device& inner_device = self.inner();
      std::vector<float> keys(std::size_t{args.index_key.n_rows} * args.index_key.n_cols);
      for (std::uint32_t r = 0; r < args.index_key.n_rows; ++r) {
        for (std::uint32_t c = 0; c < args.index_key.n_cols; ++c)
          keys[std::size_t{r} * args.index_key.n_cols + c] = -args.index_key.row(r)[c];
      }
      ops::LatentAppendArgs wrong = args;
      wrong.index_key = mat_view(keys.data(), args.index_key.n_rows, args.index_key.n_cols);
      inner_device.ops().latent_append(inner_device, wrong);
    };
  }
};

class RowCount final : public PlantedDevice {
 public:
  explicit RowCount(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.linear = [](ops::Device& device, const ops::LinearArgs& args) noexcept {
      auto& self = static_cast<RowCount&>(device);
      self.took_place_ = true;
      ops::Device& inner_device = self.inner();
      inner_device.ops().linear(inner_device, args);
      if (args.x.n_rows < 2) return;
      for (std::uint32_t r = 0; r < args.out.n_rows; ++r) {
        float& first = args.out.row(r)[0];
        first = std::nextafter(first, std::numeric_limits<float>::infinity());
      }
    };
  }
};

}  // namespace

std::string_view name_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::rope_position:
      return "rope position + 1";
    case Fault::skipped_norm_weight:
      return "skipped norm weight";
    case Fault::swapped_kv_head:
      return "swapped KV head";
    case Fault::negated_index_key:
      return "negated index key";
    case Fault::row_count:
      return "row-count dependent product";
  }
  return "";
}

std::unique_ptr<PlantedDevice> plant(Fault fault, std::unique_ptr<ops::Device> device) {
  switch (fault) {
    case Fault::rope_position:
      return std::make_unique<RopePosition>(std::move(device));
    case Fault::skipped_norm_weight:
      return std::make_unique<SkippedNormWeight>(std::move(device));
    case Fault::swapped_kv_head:
      return std::make_unique<SwappedKvHead>(std::move(device));
    case Fault::negated_index_key:
      return std::make_unique<NegatedIndexKey>(std::move(device));
    case Fault::row_count:
      return std::make_unique<RowCount>(std::move(device));
  }
  KVASIR_CHECK(false) << "a fault without a device";
  return nullptr;
}

}  // namespace kvasir::verify
