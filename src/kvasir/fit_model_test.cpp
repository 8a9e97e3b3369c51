#include "kvasir/fit_model.h"

#include <gtest/gtest.h>

#include "model/model.h"

namespace kvasir {
namespace {

FitOptions options_of(const char* golden, Backend backend = Backend::cpu) {
  FitOptions options;
  options.open.model = std::filesystem::path(KVASIR_GOLDEN_MODELS) / golden;
  options.open.backend = backend;
  options.open.n_threads = 1;
  options.open.memory_budget_bytes = 1'000'000'000;
  return options;
}

TEST(FitModel, WeightsAreWhatALoadedModelHolds) {  // FIT-3
  for (const Backend backend : {Backend::cpu, Backend::ref, Backend::ref_mirror}) {
    const FitOptions options = options_of("llama", backend);
    const auto fitted = fit_model(options);
    const auto files = formats::ModelFiles::open(options.open.model);
    const auto device = make_device(backend, 1, "auto");
    ASSERT_TRUE(fitted && files && device);
    const auto loaded =
        model::Model::load(*files, **device, {.max_context = 16, .max_step_tokens = 4});
    ASSERT_TRUE(loaded);

    EXPECT_EQ(fitted->report.weights_bytes, (*loaded)->weight_bytes());
    EXPECT_TRUE(fitted->report.fits);
    EXPECT_EQ(fitted->schemes.size(), 4u);
    EXPECT_EQ(fitted->report.max_context, fitted->model_context);
  }
}

TEST(FitModel, FactsOfALoadedModelAreThoseOfItsHeaders) {
  const FitOptions options = options_of("llama");
  const auto fitted = fit_model(options);
  const auto files = formats::ModelFiles::open(options.open.model);
  const auto device = make_device(Backend::cpu, 1, "auto");
  ASSERT_TRUE(fitted && files && device);
  const auto loaded =
      model::Model::load(*files, **device, {.max_step_tokens = 512, .max_wanted = 8});
  ASSERT_TRUE(loaded);

  const auto facts = facts_of(**loaded, *files, options.open, {}, 0, (*loaded)->max_positions());

  ASSERT_TRUE(facts);
  const fit::Report report = fit::make_report(*facts, {}, 1'000'000'000, fitted->report.context);
  EXPECT_EQ(report.total_bytes - report.fixed_bytes,
            fitted->report.total_bytes - fitted->report.fixed_bytes);
  EXPECT_EQ(report.max_context, fitted->report.max_context);
  EXPECT_GE(512 * facts->step_token_bytes + facts->fixed_bytes, (*loaded)->scratch_bytes());
}

TEST(FitModel, OfLatentLayersCountsTheirMatricesScratchAndRows) {  // FIT-3, FIT-4
  const FitOptions options = options_of("glm-moe-dsa");
  const auto fitted = fit_model(options);
  const auto files = formats::ModelFiles::open(options.open.model);
  const auto device = make_device(Backend::cpu, 1, "auto");
  ASSERT_TRUE(fitted && files && device);
  const auto loaded =
      model::Model::load(*files, **device, {.max_step_tokens = 512, .max_wanted = 8});
  ASSERT_TRUE(loaded);

  const auto facts = facts_of(**loaded, *files, options.open, {}, 0, (*loaded)->max_positions());

  ASSERT_TRUE(facts);
  EXPECT_EQ(fitted->report.weights_bytes, (*loaded)->weight_bytes());
  EXPECT_GE(512 * facts->step_token_bytes + facts->fixed_bytes, (*loaded)->scratch_bytes());
  EXPECT_EQ(facts->state[0].exact_bytes, (32u + 8 + 16) * 2);
  EXPECT_EQ(facts->reads[0].flops_per_key, 2u * (4 * (40 + 32) + 2 * 16));
}

TEST(FitModel, AnEncodersStepHoldsItsLongestInput) {  // SCH-12
  for (const char* name : {"bert", "modernbert", "qwen3-embed"}) {
    FitOptions options = options_of(name);
    options.open.max_step_tokens = 144;
    const auto files = formats::ModelFiles::open(options.open.model);
    const auto device = make_device(Backend::cpu, 1, "auto");
    const auto loaded =
        model::Model::load(*files, **device, {.max_step_tokens = 144, .max_wanted = 8});
    ASSERT_TRUE(loaded) << loaded.error().what;

    const auto facts = facts_of(**loaded, *files, options.open, {}, 0, (*loaded)->max_positions());

    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->chunk, (*loaded)->max_step_tokens()) << name;
    EXPECT_GE(facts->chunk * facts->step_token_bytes + facts->fixed_bytes,
              (*loaded)->scratch_bytes());
    EXPECT_TRUE(fit_model(options)) << name;
  }
}

TEST(FitModel, FixedIsWhatEachOwnerReports) {  // FIT-8
  const FitOptions options = options_of("llama");
  const auto files = formats::ModelFiles::open(options.open.model);
  const auto device = make_device(Backend::cpu, 1, "auto");
  ASSERT_TRUE(files && device);
  const auto loaded =
      model::Model::load(*files, **device, {.max_step_tokens = 512, .max_wanted = 8});
  ASSERT_TRUE(loaded);
  const std::uint64_t vocab = (*loaded)->vocab_size();
  const auto fixed = [&](std::uint32_t max_rows, std::uint64_t text_bytes) {
    OpenOptions open = options.open;
    open.max_rows = max_rows;
    return facts_of(**loaded, *files, open, {}, text_bytes, 256)->fixed_bytes;
  };

  EXPECT_EQ(fixed(8, 5000) - fixed(8, 0), 5000u) << "tokenizer and template";
  EXPECT_GE(fixed(9, 0) - fixed(8, 0), 2 * vocab * 4) << "a row's logits and its sampler's";
  EXPECT_EQ(fixed(16, 0) - fixed(8, 0), 8 * (fixed(9, 0) - fixed(8, 0)));

  // The pool's books are of the budget that the rest leaves.
  FitOptions small = options, large = options;
  small.open.kv_budget_bytes = 1 << 20;
  large.open.kv_budget_bytes = 64 << 20;
  const auto few = size_model(*files, **device, small.open, 0),
             many = size_model(*files, **device, large.open, 0);
  ASSERT_TRUE(few && many);
  EXPECT_GT(many->facts.fixed_bytes, few->facts.fixed_bytes);
}

TEST(FitModel, ContextsBeyondTheModelsAreRefused) {  // FIT-12
  FitOptions options = options_of("llama");
  options.open.context_length = 1u << 30;

  const auto fitted = fit_model(options);

  ASSERT_FALSE(fitted);
  EXPECT_TRUE(fitted.error().what.starts_with("context length 1073741824 exceeds the model's "))
      << fitted.error().what;
}

TEST(FitModel, ModelsWithoutRoomForAnyContextAreRefused) {  // FIT-22
  FitOptions options = options_of("llama");
  options.open.memory_budget_bytes = 1000;

  const auto fitted = fit_model(options);

  ASSERT_FALSE(fitted);
  EXPECT_EQ(fitted.error().code, Errc::capacity);
  EXPECT_TRUE(fitted.error().what.starts_with("llama does not fit: weights "))
      << fitted.error().what;
}

TEST(FitModel, SchemesThatTheLayersCannotHaveSayWhy) {  // FIT-33
  FitOptions options = options_of("llama");
  options.open.max_rows = 3;
  const auto fitted = fit_model(options);
  ASSERT_TRUE(fitted);

  std::vector<std::string> names;
  for (const fit::SchemeContext& scheme : fitted->schemes) names.push_back(scheme.scheme);
  EXPECT_EQ(names, (std::vector<std::string>{"exact", "8", "4", "turbo"}));
  EXPECT_EQ(fitted->batch, 3u);
  for (const fit::SchemeContext& scheme : fitted->schemes)
    EXPECT_EQ(scheme.max_context == 0, !scheme.not_applicable.empty()) << scheme.scheme;
}

}  // namespace
}  // namespace kvasir
