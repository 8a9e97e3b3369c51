#include "cache/detail/radix_tree.h"

#include <algorithm>
#include <utility>

namespace kvasir::cache {
namespace {

std::size_t common_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t n = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(n);
  return static_cast<std::size_t>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

std::unique_ptr<RadixNode> make_node(std::span<const TokenId> edge, RadixNode* parent) {
  auto node = std::make_unique<RadixNode>();
  node->edge.assign(edge.begin(), edge.end());
  node->parent = parent;
  return node;
}

}  // namespace

RadixTree::~RadixTree() {
  std::vector<std::unique_ptr<RadixNode>> open;
  open.push_back(std::move(root_));
  while (!open.empty()) {
    const std::unique_ptr<RadixNode> node = std::move(open.back());
    open.pop_back();
    for (auto& [token, child] : node->children) open.push_back(std::move(child));
  }
}

// Puts a new node between the parent and `node`, taking the first n tokens of its edge.
RadixNode* RadixTree::split(RadixNode* node, std::size_t n_first) {
  std::unique_ptr<RadixNode>& place = node->parent->children[node->edge.front()];
  auto upper = make_node(std::span(node->edge).first(n_first), node->parent);
  node->edge.erase(node->edge.begin(), node->edge.begin() + static_cast<std::ptrdiff_t>(n_first));
  node->parent = upper.get();
  upper->children[node->edge.front()] = std::move(place);
  place = std::move(upper);
  return place.get();
}

RadixNode* RadixTree::insert(std::span<const TokenId> tokens) {
  RadixNode* node = root_.get();
  while (!tokens.empty()) {
    std::unique_ptr<RadixNode>& place = node->children[tokens.front()];
    if (!place) {
      place = make_node(tokens, node);
      return place.get();
    }
    const std::size_t same = common_length(tokens, place->edge);
    node = same == place->edge.size() ? place.get() : split(place.get(), same);
    tokens = tokens.subspan(same);
  }
  return node;
}

void RadixTree::prune(RadixNode* node) {
  while (node->parent && !node->entry && node->children.empty()) {
    RadixNode* parent = node->parent;
    parent->children.erase(node->edge.front());
    node = parent;
  }
  if (!node->parent || node->entry || node->children.size() != 1) return;
  std::unique_ptr<RadixNode> child = std::move(node->children.begin()->second);
  child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
  child->parent = node->parent;
  node->parent->children[child->edge.front()] = std::move(child);  // destroys node
}

std::vector<RadixTree::Level> RadixTree::levels(std::span<const TokenId> tokens) const {
  std::vector<Level> out;
  const RadixNode* node = root_.get();
  std::size_t depth = 0;
  while (true) {
    out.push_back({.root = node, .skip = nullptr, .common = static_cast<std::uint32_t>(depth)});
    if (depth == tokens.size()) break;
    const auto found = node->children.find(tokens[depth]);
    if (found == node->children.end()) break;
    const RadixNode* child = found->second.get();
    out.back().skip = child;
    const std::size_t same = common_length(tokens.subspan(depth), child->edge);
    depth += same;
    if (same < child->edge.size()) {
      out.push_back({.root = child, .skip = nullptr, .common = static_cast<std::uint32_t>(depth)});
      break;
    }
    node = child;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace kvasir::cache
