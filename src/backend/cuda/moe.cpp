// moe_experts (ops/moe.h): the routing stays in device memory, where a small kernel groups slots by
// expert; one launch a projection serves all experts that were chosen.
#include "backend/cuda/detail/products.h"
#include "backend/cuda/device/experts.h"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {
namespace {

enum Slot : int { kLists = 3 };  // CudaDevice::workspace

struct Lists {
  GroupArgs group;
  std::uint32_t top_k;
};

Lists group_slots(CudaDevice& device, const ops::MoeExpertsArgs& a, std::uint32_t item_rows) {
  GroupArgs g{};
  g.experts = a.experts.data();
  g.n_slots = a.x.n_rows * a.top_k;
  g.n_experts = static_cast<std::uint32_t>(a.bank.size());
  g.item_rows = item_rows;
  g.n_items = items_bound(g.n_slots, g.n_experts, item_rows);
  const std::size_t item_words = sizeof(ExpertItem) / sizeof(std::uint32_t);
  auto* const words = device.workspace<std::uint32_t>(
      kLists, g.n_items * item_words + 2 * std::size_t{g.n_slots} + g.n_experts + 1);
  g.items = reinterpret_cast<ExpertItem*>(words);
  g.slots = words + g.n_items * item_words;
  g.places = g.slots + g.n_slots;
  g.begins = g.places + g.n_slots;
  launch_group(device.queue(), g);
  return {g, a.top_k};
}

// A projection of every place: of the slot's token (is_token), or of a row a place.
void project(CudaDevice& device,
             const Lists& lists,
             const Products::Table& table,
             ConstMatView x,
             bool is_token,
             MatView out) {
  ProductArgs args{.weight = table.first,
                   .x = x.data,
                   .x_stride = x.stride,
                   .n_rows = x.n_rows,
                   .x_is_bf16 = 0,
                   .bias = nullptr,
                   .out = out.data,
                   .out_stride = out.stride,
                   .grouped = {.weights = table.weights,
                               .biases = table.biases,
                               .items = lists.group.items,
                               .slots = is_token ? lists.group.slots : nullptr,
                               .top_k = lists.top_k,
                               .n_items = lists.group.n_items,
                               .x_step = 0,
                               .out_step = 0},
                   .chunk_bytes = table.chunk_bytes,
                   .n_sms = static_cast<std::uint32_t>(device.n_multiprocessors()),
                   .n_warps = 0,
                   .n_slots = 0};
  const bool is_exact = table.first.code == Code::f32;
  if (!is_exact && (lists.group.item_rows > kFewRows || !is_whole_pieces(x, table.first.n_in))) {
    args.x = device.products().converted(x, table.first.k, 0);
    args.x_stride = table.first.k;
    args.x_is_bf16 = 1;
  }
  const std::uint64_t at = device.queue().n_changes();
  launch_grouped(device, table, args);
  device.products().keep_converted(at, out);
}

}  // namespace

void moe_experts(ops::Device& device, const ops::MoeExpertsArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  CudaDevice& cuda = cuda_of(device);
  Products& products = cuda.products();
  const Products::Table gate = products.table(a.bank, Products::kGate),
                        up = products.table(a.bank, Products::kUp),
                        down = products.table(a.bank, Products::kDown);
  const std::uint32_t hidden = a.x.n_cols, ff = gate.first.n_out, n_slots = a.x.n_rows * a.top_k;
  const bool is_exact = gate.first.code == Code::f32 || down.first.code == Code::f32;
  const Lists lists =
      group_slots(cuda, a, a.x.n_rows <= kManyRows || is_exact ? kFewRows : kManyRows);

  auto* const scratch =
      cuda.workspace<float>(kProbe, std::size_t{n_slots} * (2 * std::size_t{ff} + hidden));
  const MatView gates = mat_view(scratch, n_slots, ff);
  const MatView ups = mat_view(gates.row(n_slots), n_slots, ff);
  const MatView y = mat_view(ups.row(n_slots), n_slots, hidden);
  project(cuda, lists, gate, a.x, /*is_token=*/true, gates);
  project(cuda, lists, up, a.x, /*is_token=*/true, ups);
  act_mul(device,
          {.gate = gates, .up = ups, .activation = a.activation, .limit = a.limit, .out = gates});
  project(cuda, lists, down, gates, /*is_token=*/false, y);
  launch_sum_experts(cuda.queue(), {.y = y.data,
                                    .places = lists.group.places,
                                    .weights = a.weights.data(),
                                    .top_k = a.top_k,
                                    .pad = 0,
                                    .out = mat_of(a.out)});
}

}  // namespace kvasir::backend::cuda
