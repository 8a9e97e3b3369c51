// RadixTree: token sequences of one namespace, edges compressed, an entry at the node where its
// sequence ends. Nodes never move once made, so entries may point at theirs. Every walk is a loop:
// depth follows what clients send.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kvasir::cache {

struct CacheEntry;

struct RadixNode {
  std::vector<TokenId> edge;  // tokens from the parent to here; empty at the root only
  RadixNode* parent = nullptr;
  CacheEntry* entry = nullptr;                             // borrowed
  std::map<TokenId, std::unique_ptr<RadixNode>> children;  // by the first token of their edge
};

class RadixTree {
 public:
  RadixTree() : root_(std::make_unique<RadixNode>()) {}
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  RadixNode* insert(std::span<const TokenId> tokens);  // the node where they end, made if needed
  void prune(RadixNode* node);  // drops or merges what an entry's removal left useless
  bool empty() const noexcept { return root_->children.empty() && root_->entry == nullptr; }
  const RadixNode& root() const noexcept { return *root_; }

  // All entries, by how much they share with the tokens: those under `root` but not under `skip`
  // share exactly `common`.
  struct Level {
    const RadixNode* root = nullptr;
    const RadixNode* skip = nullptr;
    std::uint32_t common = 0;
  };
  std::vector<Level> levels(std::span<const TokenId> tokens) const;  // most common first

  template <class F>
  static void for_each_entry(const Level& level, F&& f) {  // f(CacheEntry&)
    std::vector<const RadixNode*> open{level.root};
    while (!open.empty()) {
      const RadixNode* node = open.back();
      open.pop_back();
      if (node->entry) f(*node->entry);
      for (const auto& [token, child] : node->children)
        if (child.get() != level.skip) open.push_back(child.get());
    }
  }

 private:
  RadixNode* split(RadixNode* node, std::size_t n_first);
  std::unique_ptr<RadixNode> root_;
};

}  // namespace kvasir::cache
