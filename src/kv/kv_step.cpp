#include "kv/kv_step.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"

namespace kvasir::kv {

StepBody::StepBody(StoreCore& owner) : core(&owner) { core->open_steps.push_back(this); }

StepBody::~StepBody() {
  for (std::size_t i = rows.size(); i > 0; --i) roll_back(i - 1);
  std::erase(core->open_steps, this);
}

Status StepBody::check_row(const StoreCore& core, const StateBody& body, const RowSpan& span) {
  if (body.in_step) return invalid("kv row is already in a step");
  if (span.n_tokens == 0 || span.n_drafts >= span.n_tokens) return invalid("empty kv row span");
  const std::uint64_t end = std::uint64_t{body.length} + span.n_tokens;
  if (end > 0xFFFF'FFFFu) return invalid("kv row is too long");
  if (core.is_due(body)) return invalid("kv row has to be converted first");
  if (core.converts() && body.length < core.geometry.transition && end > core.geometry.transition)
    return invalid("kv row span crosses the transition position");  // KV-23
  return {};
}

Status StepBody::open_rows(std::span<const RowSpan> spans) {
  rows.reserve(spans.size());
  for (const RowSpan& span : spans) {
    const auto found = core->rows.find(span.row);
    if (found == core->rows.end()) return invalid("no such kv row");
    StateBody& body = *found->second;
    KVASIR_TRY_DO(check_row(*core, body, span));
    body.in_step = true;
    rows.push_back({.body = &body, .n_tokens = span.n_tokens, .n_drafts = span.n_drafts});
  }
  return {};
}

void StepBody::stage_rows() {
  const auto n_groups = static_cast<std::uint32_t>(core->geometry.groups.size());
  tables.reserve(rows.size() * n_groups);
  for (const StagedRow& row : rows)
    for (std::uint32_t g = 0; g < n_groups; ++g) stage_table(*row.body, g, row.n_tokens);
}

// Takes after the last thing that may throw, and notes each before the next: a partial stage rolls
// back too.
void StepBody::stage_table(StateBody& body, std::uint32_t group, std::uint32_t n_tokens) {
  if (core->geometry.groups[group].holds_state()) return stage_state(body, group);
  StateTable& table = body.tables[group];
  BlockPool& pool = core->pool_of(group, table.is_encoded);
  const std::uint32_t wanted = core->blocks_for(std::uint64_t{body.length} + n_tokens);
  if (table.blocks.capacity() < wanted)
    table.blocks.reserve(std::max<std::size_t>(wanted, 2 * table.blocks.size()));
  StagedTable& staged = tables.emplace_back();
  staged.old_size = static_cast<std::uint32_t>(table.blocks.size());
  if (core->tail_is_shared(body, group)) {
    const std::uint32_t block_tokens = core->options.block_tokens;
    const std::uint32_t start = body.length / block_tokens * block_tokens;
    const BlockId copy = pool.take();
    staged.copied = true;
    staged.copied_index = staged.old_size - 1;
    staged.original = std::exchange(table.blocks.back(), copy);
    const std::uint32_t begin = std::max(start, table.first_position) - start;
    core->copy_slots(group, table.is_encoded, staged.original, copy, begin, body.length - start);
  }
  while (table.blocks.size() < wanted) table.blocks.push_back(pool.take());
}

// The next state gets a block behind the committed one, which stays as it is until the commit.
void StepBody::stage_state(StateBody& body, std::uint32_t group) {
  StateTable& table = body.tables[group];
  table.blocks.reserve(2);
  tables.push_back({.old_size = static_cast<std::uint32_t>(table.blocks.size()), .original = {}});
  table.blocks.push_back(core->pool_of(group, table.is_encoded).take());
}

void StepBody::make_row_views() {
  const std::size_t n_groups = core->geometry.groups.size();
  row_views.reserve(n_groups * rows.size());
  for (std::size_t g = 0; g < n_groups; ++g) {
    std::uint32_t first_token = 0;
    for (const StagedRow& row : rows) {
      const StateTable& table = row.body->tables[g];
      row_views.push_back({.blocks = table.blocks.data(),
                           .first_position = table.first_position,
                           .length = row.body->length,
                           .n_new = row.n_tokens,
                           .first_token = first_token,
                           .is_encoded = table.is_encoded});
      first_token += row.n_tokens;
    }
  }
}

std::span<const RecurrentRowView> StepBody::make_recurrent_rows(std::size_t layer) {
  const std::vector<PlaneView> planes = core->layer_planes(layer, false);
  const std::uint32_t group = core->geometry.layers[layer].group;
  const std::size_t begin = recurrent_rows.size();
  std::uint32_t first_token = 0;
  for (const StagedRow& row : rows) {
    const std::vector<BlockId>& blocks = row.body->tables[group].blocks;
    const auto delta = [&](BlockId block) {
      return planes.size() < 2 ? nullptr : reinterpret_cast<float*>(planes[1].row(block, 0, 0));
    };
    RecurrentRowView& view = recurrent_rows.emplace_back();
    view.conv_to = planes[0].row(blocks.back(), 0, 0);
    view.delta_to = delta(blocks.back());
    if (blocks.size() > 1) {
      view.conv_from = planes[0].row(blocks[0], 0, 0);
      view.delta_from = delta(blocks[0]);
    }
    view.n_new = row.n_tokens;
    view.first_token = first_token;
    view.is_tentative = row.n_drafts > 0;
    first_token += row.n_tokens;
  }
  return std::span(recurrent_rows).subspan(begin);
}

void StepBody::make_views() {
  make_row_views();
  const KvList& list = core->list;
  layer_views.resize(list.size());
  latent_views.resize(list.size());
  recurrent_views.resize(list.size());
  recurrent_rows.reserve(list.size() * rows.size());  // views name its elements
  for (std::size_t layer = 0; layer < list.size(); ++layer) {
    const std::span<const KvRowView> of_group{
        row_views.data() + core->geometry.layers[layer].group * rows.size(), rows.size()};
    if (list[layer].is_recurrent()) {
      recurrent_views[layer] = core->recurrent_view(layer);
      recurrent_views[layer].rows = make_recurrent_rows(layer);
    } else if (list[layer].is_latent()) {
      latent_views[layer] = core->latent_view(layer);
      latent_views[layer].rows = of_group;
    } else {
      layer_views[layer] = core->layer_view(layer);
      layer_views[layer].rows = of_group;
    }
  }
}

void StepBody::roll_back(std::size_t index) noexcept {
  StateBody* body = std::exchange(rows[index].body, nullptr);
  if (!body) return;
  const std::size_t n_groups = core->geometry.groups.size();
  const std::size_t first = index * n_groups;
  for (std::size_t g = n_groups; g > 0; --g) {
    if (first + g > tables.size()) continue;  // this table was never staged
    const StagedTable& staged = tables[first + g - 1];
    StateTable& table = body->tables[g - 1];
    BlockPool& pool = core->pool_of(g - 1, table.is_encoded);
    for (std::size_t i = table.blocks.size(); i > staged.old_size; --i)
      pool.drop(table.blocks[i - 1]);
    table.blocks.resize(staged.old_size);
    if (staged.copied) pool.drop(std::exchange(table.blocks[staged.copied_index], staged.original));
  }
  body->in_step = false;
}

void StepBody::commit(std::size_t index, std::uint32_t keep) noexcept {
  StagedRow& row = rows[index];
  if (!row.body) return;
  KVASIR_CHECK(keep == 0 || (keep <= row.n_tokens && keep + row.n_drafts >= row.n_tokens))
      << "keep " << keep << " of " << row.n_tokens << " tokens with " << row.n_drafts << " drafts";
  if (keep == 0) return roll_back(index);
  StateBody& body = *std::exchange(row.body, nullptr);
  body.length += keep;
  const std::size_t n_groups = core->geometry.groups.size();
  for (std::size_t g = 0; g < n_groups; ++g) {
    const GroupGeometry& group = core->geometry.groups[g];
    const StagedTable& staged = tables[index * n_groups + g];
    StateTable& table = body.tables[g];
    BlockPool& pool = core->pool_of(g, table.is_encoded);
    if (group.holds_state()) {  // the next state takes the place of the last
      std::swap(table.blocks.front(), table.blocks.back());
      table.first_position = body.length;
    }
    const std::uint32_t wanted = core->table_size(group, body.length);
    for (std::size_t i = table.blocks.size(); i > wanted; --i) pool.drop(table.blocks[i - 1]);
    table.blocks.resize(wanted);
    if (staged.copied) pool.drop(staged.original);
  }
  core->release_behind_windows(body);
  body.in_step = false;
}

KvStep::KvStep(std::unique_ptr<StepBody> body) noexcept : body_(std::move(body)) {}
KvStep::KvStep(KvStep&& other) noexcept = default;
KvStep& KvStep::operator=(KvStep&& other) noexcept = default;
KvStep::~KvStep() = default;

KvViews KvStep::views() const noexcept {
  KVASIR_CHECK(body_ != nullptr);
  return {body_->layer_views, body_->latent_views, body_->recurrent_views};
}

std::size_t KvStep::n_rows() const noexcept { return body_ ? body_->rows.size() : 0; }

void KvStep::discard(std::size_t index) noexcept {
  KVASIR_CHECK(body_ && index < body_->rows.size());
  body_->roll_back(index);
}

void KvStep::commit(std::span<const std::uint32_t> keep) && noexcept {
  KVASIR_CHECK(body_ && keep.size() == body_->rows.size());
  for (std::size_t i = 0; i < keep.size(); ++i) body_->commit(i, keep[i]);
  body_.reset();
}

void KvStep::commit() && noexcept {
  KVASIR_CHECK(body_ != nullptr);
  for (std::size_t i = 0; i < body_->rows.size(); ++i) body_->commit(i, body_->rows[i].n_tokens);
  body_.reset();
}

}  // namespace kvasir::kv
