#include "formats/model_files.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "formats/detail/hub_folds.h"
#include "formats/detail/hub_names.h"
#include "formats/detail/opened_model.h"

namespace kvasir::formats {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out.append(i ? ", " : "").append(std::to_string(shape[i]));
  return out + "]";
}

// Where a stack of experts lies when they are not stored apart: "….experts.*.w1.weight" →
// "….switch_mlp.gate_proj.weight".
std::string stacked_name(std::string_view pattern) {
  constexpr std::string_view kEach = "experts.*.";
  const std::size_t at = pattern.find(kEach);
  std::string rest(pattern.substr(at + kEach.size()));
  if (rest.starts_with("w1.")) rest.replace(0, 2, "gate_proj");
  if (rest.starts_with("w2.")) rest.replace(0, 2, "down_proj");
  if (rest.starts_with("w3.")) rest.replace(0, 2, "up_proj");
  return std::string(pattern.substr(0, at)).append("switch_mlp.").append(rest);
}

// What a blank model was asked for.
struct WantList {
  std::vector<WantedTensor> tensors;
  std::unordered_set<std::string> names;

  void add(std::string_view name, std::vector<std::uint64_t> shape, bool is_matrix) {
    if (names.emplace(name).second)
      tensors.push_back({std::string(name), std::move(shape), is_matrix});
  }
};

codec::WeightMatrix blank_matrix(std::uint32_t n_out, std::uint32_t n_in) {
  return {.type = *codec::find_weight_type("bf16"), .n_out = n_out, .n_in = n_in, .planes = {}};
}

}  // namespace

struct ModelFiles::Impl {
  OpenedModel model;
  std::vector<TensorInfo> infos;
  std::unordered_map<std::string_view, std::size_t> by_name;  // keys live in infos
  std::unique_ptr<std::atomic<bool>[]> used;
  std::unique_ptr<WantList> wanted;  // of a blank model

  explicit Impl(OpenedModel opened) : model(std::move(opened)) {
    infos.reserve(model.tensors.size());
    for (const StoredTensor& tensor : model.tensors) infos.push_back(tensor.info);
    for (std::size_t i = 0; i < infos.size(); ++i) by_name.emplace(infos[i].name, i);
    used = std::make_unique<std::atomic<bool>[]>(infos.size());
  }

  Error error(std::string_view name, std::string_view what) const {
    return invalid(model.path.string() + ": tensor '" + std::string(name) + "' " +
                   std::string(what));
  }

  Error refused(const StoredTensor& tensor, std::string_view why) const {
    return {Errc::unsupported, error(tensor.info.name, why).what};
  }

  // The tensor, marked as used and readable as a weight.
  Result<const StoredTensor*> use(std::string_view name) const {
    const auto it = by_name.find(name);
    if (it == by_name.end()) return error(name, "is missing");
    used[it->second].store(true, std::memory_order_relaxed);
    const StoredTensor& tensor = model.tensors[it->second];
    if (!tensor.type) return refused(tensor, tensor.refusal);
    if (!has_plain_order(tensor))
      return refused(tensor, "is in GPTQ's activation order (g_idx), which has no affine form");
    return &tensor;
  }

  Result<const StoredTensor*> use_shaped(std::string_view name,
                                         const std::vector<std::uint64_t>& shape) const {
    KVASIR_TRY(const StoredTensor* tensor, use(name));
    if (tensor->info.shape == shape) return tensor;
    return error(name,
                 "has shape " + shape_text(tensor->info.shape) + ", expected " + shape_text(shape));
  }
};

ModelFiles::ModelFiles(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelFiles::ModelFiles(ModelFiles&&) noexcept = default;
ModelFiles& ModelFiles::operator=(ModelFiles&&) noexcept = default;
ModelFiles::~ModelFiles() = default;

Result<ModelFiles> ModelFiles::open(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec))
    return not_found(path.string() + ": no such file or folder");
  auto opened =
      std::filesystem::is_directory(path, ec) ? open_hub_folder(path) : open_gguf_file(path);
  if (!opened) return std::move(opened).error();
  return ModelFiles(std::make_unique<Impl>(*std::move(opened)));
}

ModelFiles ModelFiles::blank(const std::filesystem::path& path,
                             json::Value config,
                             const std::vector<std::string>& present) {
  OpenedModel model;
  model.path = path;
  model.config = text_model_config(std::move(config));
  for (const std::string& name : present) {
    StoredTensor& tensor = model.tensors.emplace_back();
    tensor.info.name = tensor.info.stored_name = name;
  }
  auto impl = std::make_unique<Impl>(std::move(model));
  impl->wanted = std::make_unique<WantList>();
  return ModelFiles(std::move(impl));
}

const std::vector<WantedTensor>& ModelFiles::wanted() const noexcept {
  static const std::vector<WantedTensor> kNone;
  return impl_->wanted ? impl_->wanted->tensors : kNone;
}

Container ModelFiles::container() const noexcept { return impl_->model.container; }
const std::filesystem::path& ModelFiles::path() const noexcept { return impl_->model.path; }
const json::Value& ModelFiles::config() const noexcept { return impl_->model.config; }
const json::Value& ModelFiles::generation_config() const noexcept {
  return impl_->model.generation_config;
}
const json::Value& ModelFiles::metadata() const noexcept { return impl_->model.metadata; }
const GgufContent* ModelFiles::gguf() const noexcept { return impl_->model.gguf.get(); }
const std::vector<TensorInfo>& ModelFiles::tensors() const noexcept { return impl_->infos; }
bool ModelFiles::has(std::string_view name) const noexcept { return find(name) != nullptr; }

const TensorInfo* ModelFiles::find(std::string_view name) const noexcept {
  const auto it = impl_->by_name.find(name);
  return it == impl_->by_name.end() ? nullptr : &impl_->infos[it->second];
}

Result<codec::WeightMatrix> ModelFiles::matrix(std::string_view name,
                                               std::uint32_t n_out,
                                               std::uint32_t n_in) const {
  using Shape = std::vector<std::uint64_t>;
  if (impl_->wanted) {
    impl_->wanted->add(name, {n_out, n_in}, /*is_matrix=*/true);
    return blank_matrix(n_out, n_in);
  }
  const TensorInfo* info = find(name);
  const bool is_vector = n_out == 1 && info && info->shape == Shape{n_in};
  KVASIR_TRY(const StoredTensor* tensor,
             impl_->use_shaped(name, is_vector ? Shape{n_in} : Shape{n_out, n_in}));
  return view_of(*tensor, 0, n_out, n_in);
}

Result<std::vector<float>> ModelFiles::vector(std::string_view name, std::size_t n) const {
  if (impl_->wanted) {
    impl_->wanted->add(name, {n}, /*is_matrix=*/false);
    return std::vector<float>(n, 1.0f);
  }
  KVASIR_TRY(const StoredTensor* tensor, impl_->use(name));
  const codec::WeightTypeInfo& facts = codec::info(*tensor->type);
  if (facts.quantized || tensor->planes.scales)
    return impl_->error(name, "is " + tensor->info.type + ", expected a dense one");
  if (tensor->info.size_bytes % facts.block_bytes != 0 ||
      tensor->info.size_bytes / facts.block_bytes != n) {
    return impl_->error(name, "has shape " + shape_text(tensor->info.shape) + ", expected " +
                                  std::to_string(n) + " elements");
  }
  std::vector<float> out(n);
  codec::decode_row(*tensor->type, tensor->planes, n, out.data());
  return out;
}

Result<std::vector<float>> ModelFiles::vector(
    std::string_view name, const std::vector<std::vector<std::uint64_t>>& shapes) const {
  const auto& first = shapes.front();
  const std::size_t n =
      std::accumulate(first.begin(), first.end(), std::uint64_t{1}, std::multiplies<>());
  if (impl_->wanted) {
    impl_->wanted->add(name, first, /*is_matrix=*/false);
    return std::vector<float>(n, 1.0f);
  }
  KVASIR_TRY(auto out, vector(name, n));
  const auto& stored = find(name)->shape;
  if (std::find(shapes.begin(), shapes.end(), stored) != shapes.end()) return out;
  return impl_->error(name, "has shape " + shape_text(stored) + ", expected " + shape_text(first));
}

Result<ExpertMatrices> ModelFiles::stack(std::string_view name,
                                         std::uint32_t n_experts,
                                         std::uint32_t n_out,
                                         std::uint32_t n_in) const {
  ExpertMatrices out;
  const std::size_t star = name.find("experts.*.");
  if (impl_->wanted && star == std::string_view::npos) {
    impl_->wanted->add(name, {n_experts, n_out, n_in}, /*is_matrix=*/true);
    return ExpertMatrices(n_experts, blank_matrix(n_out, n_in));
  }
  std::string stacked = star == std::string_view::npos ? std::string(name) : stacked_name(name);
  if (!has(stacked) && has(stacked + "_blocks")) stacked += "_blocks";
  if (star == std::string_view::npos || (has(stacked) && !impl_->wanted)) {
    KVASIR_TRY(const StoredTensor* tensor, impl_->use_shaped(stacked, {n_experts, n_out, n_in}));
    for (std::size_t e = 0; e < n_experts; ++e)
      out.push_back(view_of(*tensor, e * n_out, n_out, n_in));
    return out;
  }
  for (std::uint32_t e = 0; e < n_experts; ++e) {
    std::string one(name);
    one.replace(star + 8, 1, std::to_string(e));
    KVASIR_TRY(const codec::WeightMatrix expert, matrix(one, n_out, n_in));
    out.push_back(expert);
  }
  return out;
}

std::vector<std::string> ModelFiles::unused() const {
  std::vector<std::string> out;
  if (impl_->wanted) return out;
  for (std::size_t i = 0; i < impl_->infos.size(); ++i) {
    if (!impl_->used[i] && !may_stay_unread(impl_->infos[i].name))
      out.push_back(impl_->infos[i].name);
  }
  return out;
}

void ModelFiles::release_pages(const codec::WeightMatrix& m) const noexcept {
  if (m.n_out == 0) return;
  if (const codec::ColumnLayout* columns = m.planes.columns) {
    // Rows share every page: only a whole matrix has pages of its own.
    if (m.n_out == columns->n_out)
      release_whole_pages(m.planes.codes, std::size_t{m.n_out} * m.n_in / 2);
    return;
  }
  const std::size_t last_row = m.n_out - 1;
  release_whole_pages(m.planes.codes, last_row * m.codes_stride + m.row_bytes());
  // The last row of scales may be another matrix's too; its pages come back when they are read.
  const std::size_t scales_bytes =
      (m.scale_phase + last_row) / m.rows_per_scale * m.scales_stride + m.scale_row_bytes();
  if (m.planes.scales) release_whole_pages(m.planes.scales, scales_bytes);
  if (m.planes.biases) release_whole_pages(m.planes.biases, scales_bytes);
}

}  // namespace kvasir::formats
