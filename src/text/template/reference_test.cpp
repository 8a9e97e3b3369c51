// Renderings recorded with the reference implementation: the published templates, and small
// templates for every rule.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "text/chat_template.h"
#include "text/verify_templates.h"

namespace kvasir::text {
namespace {

const std::filesystem::path kData = std::filesystem::path(KVASIR_TEST_DATA) / "templates";

TEST(ReferenceRenderings, OfPublishedTemplatesAreEqualAndTheirErrorsAreErrors) {
  const std::filesystem::path shared = KVASIR_SHARED;
  if (!std::filesystem::exists(shared / "templates")) GTEST_SKIP() << "no shared templates here";

  const auto summary = verify_templates(
      shared / "templates", shared / "goldens/templates.json", [](const VerifyDifference& d) {
        ADD_FAILURE() << d.template_name << " / " << d.conversation << ": " << d.what;
      });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_templates, 68u);
  EXPECT_EQ(summary->n_texts, 1377u);
  EXPECT_EQ(summary->n_errors, 187u);
  EXPECT_EQ(summary->n_raised, 37u);
  EXPECT_TRUE(summary->all_good());
}

TEST(ReferenceRenderings, OfTheSampleInTheRepositoryAreEqual) {
  const auto summary = verify_templates(
      kData / "sample", kData / "sample/cases.json", [](const VerifyDifference& d) {
        ADD_FAILURE() << d.template_name << " / " << d.conversation << ": " << d.what;
      });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_GT(summary->n_texts, 20u);
  EXPECT_GT(summary->n_raised, 0u);
  EXPECT_TRUE(summary->all_good());
}

TEST(ReferenceRenderings, OfSmallTemplatesAreEqual) {
  const auto text = read_file(kData / "small_cases.json", 16u << 20);
  ASSERT_TRUE(text) << text.error().what;
  const auto cases = json::parse(*text);
  ASSERT_TRUE(cases) << cases.error().what;
  const json::Object& variables = *cases->find("variables")->as_object();
  const RenderOptions options{.now = {2026, 1, 2, 3, 4, 5}};

  for (const json::Value& expected : *cases->find("cases")->as_array()) {
    const std::string source = expected.string_or("template", "");
    const auto compiled = ChatTemplate::compile(source);
    const auto got =
        compiled ? compiled->render(variables, options) : Result<Rendered>(compiled.error());
    const json::Value* want = expected.find("text");
    if (want == nullptr) {
      EXPECT_FALSE(got) << source << "\n  must fail with: " << expected.string_or("error", "");
    } else {
      EXPECT_TRUE(got) << source << "\n  " << (got ? "" : got.error().what);
      EXPECT_EQ(got ? got->text : "", *want->as_string()) << source;
    }
  }
}

TEST(VerifyTemplates, ReportsEveryKindOfDifference) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "kvasir_verify_templates";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "t.jinja") << "{% if bad %}{{ raise_exception('no') }}{% endif %}{{ x }}";
  std::ofstream(folder / "cases.json")
      << R"({"now": "2026-01-02T03:04:05", "defaults": {"x": 1}, "conversations": {"a": {}, "b": {"x": 2}, "c": {"bad": true}, "d": {}},)"
         R"("renders": {"t.jinja": {"a": {"text": "1"}, "b": {"text": "3"}, "c": {"error": "TemplateError: yes"}, "d": {"error": "TypeError: x"}}}})";

  std::string seen;
  const auto summary =
      verify_templates(folder, folder / "cases.json",
                       [&seen](const VerifyDifference& d) { seen += d.conversation; });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(seen, "bcd");
  EXPECT_EQ(summary->n_equal, 1u);
  EXPECT_EQ(summary->n_texts, 2u);
  EXPECT_EQ(summary->n_failed, 1u);
  EXPECT_EQ(summary->n_errors, 2u);
  EXPECT_EQ(summary->n_carried, 0u);
  EXPECT_EQ(summary->n_raised, 1u);
  EXPECT_FALSE(summary->all_good());
  std::filesystem::remove_all(folder);
}

TEST(VerifyTemplates, MissingOrBrokenFilesAreErrors) {
  EXPECT_FALSE(verify_templates(kData, kData / "absent.json"));
  EXPECT_FALSE(verify_templates(kData / "absent", kData / "sample/cases.json"));
  EXPECT_FALSE(verify_templates(kData, kData / "small_cases.json"));
}

}  // namespace
}  // namespace kvasir::text
