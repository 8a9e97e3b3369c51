#include "kvasir/verify/planted_fault.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kvasir/verify/device_memory.h"
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
      ops::RopeArgs wrong = args;
      if (is_query) {
        self.shifted_.assign(args.positions.begin(), args.positions.end());
        for (auto& p : self.shifted_) ++p;
        wrong.positions = self.shifted_;
      }
      self.inner().ops().rope(self.inner(), wrong);
    };
  }

 private:
  std::vector<std::uint32_t> shifted_;  // the same in all layers of a step
  bool next_is_query_ = true;           // graphs rope the queries, then the keys
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
      ops::LayerNormArgs wrong = args;
      if (args.weight == self.skipped_) {
        if (self.ones_.size_bytes() == 0)
          self.ones_ = to_device(self.inner(), std::vector<float>(args.x.n_cols, 1.0f));
        wrong.weight = self.ones_.f32();
      }
      self.inner().ops().layer_norm(self.inner(), wrong);
    };
  }

 private:
  Buffer ones_;
  const float* skipped_ = nullptr;
};

// Matrices in the device's memory that take the place of others until a step is over.
class Replacements {
 public:
  template <class Change>  // (row)
  ConstMatView add(ops::Device& device, ConstMatView x, Change&& change) {
    std::vector<float> values = to_host(device, x);
    for (std::uint32_t r = 0; r < x.n_rows; ++r) change(values.data() + std::size_t{r} * x.n_cols);
    const Buffer& kept = buffers_.emplace_back(to_device(device, values));
    return mat_view(kept.f32(), x.n_rows, x.n_cols);
  }
  ConstMatView swap_first_heads(ops::Device& device, ConstMatView x, std::uint32_t head_dim) {
    return add(device, x,
               [&](float* row) { std::swap_ranges(row, row + head_dim, row + head_dim); });
  }
  void clear() { buffers_.clear(); }

 private:
  std::vector<Buffer> buffers_;
};

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
      ops::KvAppendArgs wrong = args;
      wrong.k = self.replaced_.swap_first_heads(inner_device, args.k, args.kv.head_dim);
      wrong.v = self.replaced_.swap_first_heads(inner_device, args.v, args.kv.head_dim);
      inner_device.ops().kv_append(inner_device, wrong);
    };
    // Halves of a latent row change places: it has one key head, whose values are its keys.
    table_.latent_append = [](ops::Device& device, const ops::LatentAppendArgs& args) noexcept {
      auto& self = static_cast<SwappedKvHead&>(device);
      self.took_place_ = true;
      ops::LatentAppendArgs wrong = args;
      wrong.latent =
          self.replaced_.swap_first_heads(self.inner(), args.latent, args.latent.n_cols / 2);
      self.inner().ops().latent_append(self.inner(), wrong);
    };
  }
  Status end_step() noexcept override {
    Status done = inner().end_step();
    replaced_.clear();
    return done;
  }

 private:
  Replacements replaced_;
};

class NegatedIndexKey final : public PlantedDevice {
 public:
  explicit NegatedIndexKey(std::unique_ptr<ops::Device> inner) : PlantedDevice(std::move(inner)) {
    table_.latent_append = [](ops::Device& device, const ops::LatentAppendArgs& args) noexcept {
      auto& self = static_cast<NegatedIndexKey&>(device);
      self.took_place_ = true;
      ops::Device& inner_device = self.inner();
      ops::LatentAppendArgs wrong = args;
      wrong.index_key = self.replaced_.add(inner_device, args.index_key, [&](float* row) {
        for (std::uint32_t c = 0; c < args.index_key.n_cols; ++c) row[c] = -row[c];
      });
      inner_device.ops().latent_append(inner_device, wrong);
    };
  }
  Status end_step() noexcept override {
    Status done = inner().end_step();
    replaced_.clear();
    return done;
  }

 private:
  Replacements replaced_;
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
      std::vector<float> first = to_host(inner_device, args.out.columns(0, 1));
      for (std::uint32_t r = 0; r < args.out.n_rows; ++r) {
        first[r] = std::nextafter(first[r], std::numeric_limits<float>::infinity());
        inner_device.copy(reinterpret_cast<std::byte*>(args.out.row(r)),
                          reinterpret_cast<const std::byte*>(&first[r]), sizeof(float));
      }
      const Status done = inner_device.synchronize();
      KVASIR_CHECK(done.has_value()) << done.error().what;
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
