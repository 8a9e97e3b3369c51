#include "server/web/assets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

namespace kvasir::server {
namespace {

const Asset* find(std::string_view name) {
  for (const Asset& asset : assets()) {
    if (asset.name == name) return &asset;
  }
  return nullptr;
}

/** What `pattern`'s first group matches in the asset's text. */
std::set<std::string> matches(const Asset& asset, const char* pattern) {
  const std::string text(asset.content);
  const std::regex regex(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    out.insert((*it)[1].str());
  }
  return out;
}

TEST(WebAssets, AreSortedNonEmptyAndTagged) {
  const auto all = assets();

  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Asset& a, const Asset& b) { return a.name < b.name; }));
  std::set<std::string_view> etags;
  for (const Asset& asset : all) {
    EXPECT_FALSE(asset.content.empty()) << asset.name;
    EXPECT_NE(asset.content_type.find('/'), std::string_view::npos) << asset.name;
    EXPECT_TRUE(asset.etag.size() > 2 && asset.etag.front() == '"' && asset.etag.back() == '"');
    etags.insert(asset.etag);
  }
  EXPECT_EQ(etags.size(), all.size());
}

TEST(WebAssets, EveryFileThatThePageNamesIsEmbedded) {
  const Asset* page = find("index.html");
  ASSERT_NE(page, nullptr);

  for (const std::string& name : matches(*page, "\"assets/([^\"#]+)")) {
    EXPECT_NE(find(name), nullptr) << name;
  }
}

TEST(WebAssets, EveryImportedModuleIsEmbedded) {
  for (const Asset& asset : assets()) {
    for (const std::string& name : matches(asset, "from '\\./([^']+)'")) {
      EXPECT_NE(find(name), nullptr) << asset.name << " imports " << name;
    }
  }
}

TEST(WebAssets, ThePageHasNothingInlineAndNamesNoOtherOrigin) {  // SRV-70: default-src 'self'
  const Asset* page = find("index.html");
  ASSERT_NE(page, nullptr);

  EXPECT_EQ(page->content.find("<style"), std::string_view::npos);
  EXPECT_EQ(page->content.find(" style="), std::string_view::npos);
  EXPECT_EQ(page->content.find("http"), std::string_view::npos);
  EXPECT_TRUE(matches(*page, "<script(?![^>]* src=)([^>]*>)").empty());
  EXPECT_TRUE(matches(*page, " (on[a-z]+)=").empty());
}

TEST(WebAssets, ModelTextIsNeverParsedAsHtml) {
  for (const Asset& asset : assets()) {
    for (const char* door : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"}) {
      EXPECT_EQ(asset.content.find(door), std::string_view::npos) << asset.name << ": " << door;
    }
  }
}

}  // namespace
}  // namespace kvasir::server
