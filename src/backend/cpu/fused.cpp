// add_norm, query_key and gated_mlp of many rows: what several ops do is done to a row, or to some
// columns of some rows, while they are in a cache. The bits are the composition's: the same kernels
// on the same values.
#include "ops/fused.h"

#include <algorithm>

#include "backend/cpu/detail/linear_jobs.h"
#include "backend/cpu/detail/row_jobs.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kFewestRows = 64;   // that repay a gated block in pieces
constexpr std::uint32_t kFewestTokens = 8;  // for queries and keys
constexpr std::size_t kPassWork = 3;        // of a norm and what goes with it, an element

// ---- a gated block: gate and up of some columns, activated, become rows of down ----

struct GatedBlock {
  const ops::GatedMlpArgs& args;
  const CpuMatrix &gate, &up, &down;
  std::uint32_t up_panel;         // up's first: not 0 where one matrix holds both
  std::uint32_t columns, n_rows;  // that are done together, at most
  LinearInput from, to;

  std::uint32_t ff() const noexcept { return args.gated.gate_up.n_cols / 2; }
};

// Columns done together: whole panels, two where there are so many, as tiles take codes, and, where
// their sums or their grid are wanted, whole groups of down.
std::uint32_t columns_of(const CpuMatrix& down) noexcept {
  const std::uint32_t panels = down.padded_in() % (2 * kPanel) == 0 ? 2 * kPanel : kPanel;
  return down.layout.has_bias || down.on_grid() ? std::max(panels, down.layout.group) : panels;
}

bool comes_in_pieces(const CpuDevice& cpu, const ops::GatedMlpArgs& a) noexcept {
  const auto& parts = a.gated.parts;
  const std::uint32_t n_rows = a.gated.x.n_rows, ff = a.gated.gate_up.n_cols / 2;
  if (n_rows < kFewestRows || parts.empty() || parts.size() > 2) return false;
  const CpuMatrix &gate = matrix_of(parts[0].weight), &up = matrix_of(parts.back().weight),
                  &down = matrix_of(a.down.weight);
  return !takes_integers(cpu, gate, n_rows) && !takes_integers(cpu, up, n_rows) &&
         !takes_integers(cpu, down, n_rows) && take_the_same_input(cpu, gate, up, n_rows) &&
         gate.n_out() == (parts.size() == 2 ? ff : 2 * ff) && down.padded_in() == ff &&
         ff % columns_of(down) == 0;
}

// Of even pieces, in pairs of aligned runs.
std::uint32_t rows_of_piece(std::uint32_t n, std::uint32_t most) noexcept {
  const std::uint32_t n_pieces = (n + most - 1) / most, even = (n + n_pieces - 1) / n_pieces;
  return std::min(most, (even + 2 * kRowAlign - 1) / (2 * kRowAlign) * (2 * kRowAlign));
}

GatedBlock lay_out(CpuDevice& cpu, const ops::GatedMlpArgs& a) {
  const auto& parts = a.gated.parts;
  const CpuMatrix &gate = matrix_of(parts[0].weight), &down = matrix_of(a.down.weight);
  const std::uint32_t n = a.gated.x.n_rows, ff = a.gated.gate_up.n_cols / 2;
  const LinearInput from = prepare(cpu, gate, a.gated.x);
  return {.args = a,
          .gate = gate,
          .up = matrix_of(parts.back().weight),
          .down = down,
          .up_panel = parts.size() == 2 ? 0 : ff / kPanel,
          .columns = columns_of(down),
          .n_rows = rows_of_piece(n, rows_together(gate.layout, from.tiles != nullptr)),
          .from = from,
          .to = make_room(cpu, down, n, cpu.hidden(), cpu.hidden_sums())};
}

// Outputs [column, column + columns) of gate or up for rows [row, row + n).
void multiply_columns(const CpuDevice& cpu,
                      const GatedBlock& b,
                      bool is_up,
                      std::uint32_t column,
                      std::uint32_t row,
                      std::uint32_t n,
                      float* out,
                      float* scratch) {
  const ops::LinearPart& part = is_up ? b.args.gated.parts.back() : b.args.gated.parts.front();
  const CpuMatrix& m = is_up ? b.up : b.gate;
  const std::uint32_t panel = column / kPanel + (is_up ? b.up_panel : 0);
  const float* const bias = part.bias ? part.bias + std::size_t{panel} * kPanel : nullptr;
  const std::size_t k = m.padded_in(), at = row * k;
  LinearJob job =
      job_of(m, b.from, bias, {out, b.args.gated.x.n_rows, b.columns, std::size_t{b.columns}});
  job.weight += panel * m.layout.panel_bytes;
  job.n_out = b.columns;
  if (job.x) job.x += at;
  if (job.x_pairs) job.x_pairs += at / 2;
  if (job.x_tiles) job.x_tiles += at;
  if (job.group_sums) job.group_sums += std::size_t{row} * m.layout.n_groups;
  cpu.kernels().linear(job, 0, b.columns / kPanel, 0, n, scratch);
}

// Rows [row, row + n), at most kRowAlign, of `columns` values each: made ready for down.
void hand_over(const CpuDevice& cpu,
               const GatedBlock& b,
               std::uint32_t column,
               std::uint32_t row,
               std::uint32_t n,
               float* values) {
  const KernelTable& kernels = cpu.kernels();
  const PackedLayout& w = b.down.layout;
  const std::uint32_t width = b.columns;
  if (b.down.on_grid()) {
    kernels.round_to_grid(w, values, n * width / w.group, values);
  } else if (b.down.round_x && !(b.to.tiles && !b.to.group_sums))  // tiles are rounded on the way
    kernels.round_to_bf16(values, std::size_t{n} * width, values);
  for (std::uint32_t r = 0; r < n && b.to.group_sums; ++r)
    kernels.group_sums(values + std::size_t{r} * width, w.group, width / w.group,
                       b.to.sums_of(b.down, row + r) + column / w.group);
  const std::size_t at = std::size_t{row} * b.ff() + std::size_t{column} * kRowAlign;
  if (b.to.pairs) kernels.pack_pairs(values, n, width, kRowAlign, b.to.pairs + at / 2);
  if (b.to.x) kernels.pack_rows(values, n, width, kRowAlign, b.to.x + at);
  if (!b.to.tiles) return;
  PackedLayout part = w;  // of tiles: the columns' steps alone
  part.group = std::min(w.group, kStep);
  part.n_groups = width / part.group;
  for (std::uint32_t r = 0; r < n; ++r)
    kernels.pack_tiles(part, values + std::size_t{r} * width, r, b.to.tiles + at);
}

void activate_columns(const CpuDevice& cpu,
                      const GatedBlock& b,
                      std::uint32_t column,
                      std::uint32_t row,
                      std::uint32_t n,
                      float* scratch) {
  float* const gate = scratch + kLinearScratchFloats;
  float* const up = gate + std::size_t{b.n_rows} * b.columns;
  multiply_columns(cpu, b, /*is_up=*/false, column, row, n, gate, scratch);
  multiply_columns(cpu, b, /*is_up=*/true, column, row, n, up, scratch);
  const MatView gated{gate, b.n_rows, b.columns, b.columns};
  const RowsJob job = rows_job(gated, ConstMatView{up, b.n_rows, b.columns, b.columns}, gated,
                               ops::ActMulArgs{}.limit);
  const auto act = cpu.kernels().act_mul[static_cast<std::size_t>(b.args.gated.activation)];
  for (std::uint32_t r = 0; r < n; r += kRowAlign) {
    const std::uint32_t now = std::min(n - r, kRowAlign);
    act(job, r, r + now);
    hand_over(cpu, b, column, row + r, now, gate + std::size_t{r} * b.columns);
  }
}

// ---- queries and keys ----

void prepare_heads(const CpuDevice& cpu,
                   const ops::QueryKeyArgs& a,
                   MatView x,
                   const float* norm,
                   std::uint32_t group,
                   std::uint32_t token) {
  if (norm) cpu.kernels().rms_norm(norm_job(x, x, norm, nullptr, group, a.eps), token, token + 1);
  if (a.n_pairs == 0) return;
  cpu.kernels().rope(rope_job({.x = x,
                               .head_dim = a.head_dim,
                               .n_pairs = a.n_pairs,
                               .interleaved = a.interleaved,
                               .positions = a.positions,
                               .cos = a.cos,
                               .sin = a.sin}),
                     token, token + 1);
}

bool has_many_tokens(const ops::QueryKeyArgs& a) noexcept {
  std::size_t n_tokens = 0;
  for (const KvRowView& row : a.kv.rows) n_tokens += row.n_new;
  return n_tokens >= kFewestTokens && n_tokens == a.q.n_rows;
}

}  // namespace

void add_norm(ops::Device& device, const ops::AddNormArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const RowsJob sum = rows_job(a.x, a.y, a.x, a.alpha);
  const NormJob norm = norm_job(a.x, a.out, a.weight, nullptr, a.x.n_cols, a.eps);
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols * kPassWork,
            [&](std::size_t begin, std::size_t end, int) {
              for (auto row = static_cast<std::uint32_t>(begin); row < end; ++row) {
                cpu.kernels().add_scaled(sum, row, row + 1);
                cpu.kernels().rms_norm(norm, row, row + 1);
              }
            });
}

void query_key(ops::Device& device, const ops::QueryKeyArgs& a) noexcept {
  if (!has_many_tokens(a)) return ops::query_key_composed(device, a);
  CpuDevice& cpu = cpu_of(device);
  const std::size_t width = std::size_t{a.q.n_cols} + 2 * std::size_t{a.k.n_cols};
  cpu.split(a.q.n_rows, a.q.n_rows * width * kPassWork,
            [&](std::size_t begin, std::size_t end, int part) {
              float* const rounded = cpu.thread_scratch(part, a.kv.head_dim);
              for (const KvRowView& row : a.kv.rows) {
                const std::size_t first = row.first_token, behind = first + row.n_new;
                for (std::size_t t = std::max(begin, first); t < std::min(end, behind); ++t) {
                  const auto token = static_cast<std::uint32_t>(t);
                  prepare_heads(cpu, a, a.q, a.q_norm, a.q_group, token);
                  prepare_heads(cpu, a, a.k, a.k_norm, a.k_group, token);
                  append_token(cpu, {.k = a.k, .v = a.v, .kv = a.kv}, row, token - row.first_token,
                               rounded);
                }
              }
            });
}

void gated_mlp(ops::Device& device, const ops::GatedMlpArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  if (!comes_in_pieces(cpu, a)) return ops::gated_mlp_composed(device, a);
  const GatedBlock block = lay_out(cpu, a);
  const std::uint32_t n = a.gated.x.n_rows, n_chunks = (n + block.n_rows - 1) / block.n_rows,
                      n_slices = block.ff() / block.columns,
                      n_floats = 2 * block.n_rows * block.columns;
  const std::size_t work = std::size_t{n} * block.gate.padded_in() * 2 * block.ff();
  cpu.split(std::size_t{n_slices} * n_chunks, work,
            [&](std::size_t begin, std::size_t end, int part) {
              float* const scratch = cpu.thread_scratch(part, kLinearScratchFloats + n_floats);
              for (std::size_t i = begin; i < end; ++i) {
                const auto column = static_cast<std::uint32_t>(i % n_slices) * block.columns,
                           row = static_cast<std::uint32_t>(i / n_slices) * block.n_rows;
                activate_columns(cpu, block, column, row, std::min(n - row, block.n_rows), scratch);
              }
            });
  const LinearJob job = job_of(block.down, block.to, a.down.bias, a.out);
  multiply(cpu, {&job, 1});
}

}  // namespace kvasir::backend::cpu
