#include "hub/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "hub/library.h"
#include "hub/testing/fake_hub.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::kCommit;
using testing::TempFolder;
using testing::write_text;

// SRV-81.
class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    options_.cache = folder_.path() / "hub";
    options_.registry = folder_.path() / "state" / "registry.sqlite";
  }

  static fs::path sample(const std::string& name) {
    return fs::path(KVASIR_TEST_DATA) / "models" / name;
  }
  static void put_model(const fs::path& to, const std::string& name = "llama") {
    fs::create_directories(to);
    fs::copy(sample(name) / "config.json", to);
    fs::copy(sample(name) / "model.safetensors", to);
  }
  fs::path put_in_cache(const std::string& repo_folder,
                        const std::string& commit,
                        const std::string& ref,
                        const std::string& name = "llama") {
    const fs::path repo = options_.cache / repo_folder;
    put_model(repo / "snapshots" / commit, name);
    if (!ref.empty()) write_text(repo / "refs" / ref, commit);
    return repo / "snapshots" / commit;
  }
  Registry open() { return *Registry::open(options_.registry); }

  TempFolder folder_;
  HubOptions options_;
};

TEST_F(RegistryTest, ScanReadsTheFactsFromHeaders) {
  const fs::path path = put_in_cache("models--org--tiny", kCommit, "main", "qwen3-moe");
  Registry registry = open();

  const auto report = registry.scan(options_);

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->n_models, 1u);
  const auto models = registry.models();
  ASSERT_TRUE(models);
  ASSERT_EQ(models->size(), 1u);
  const ModelEntry& m = models->front();
  EXPECT_EQ(m.path, path);
  EXPECT_EQ(m.repo, "org/tiny");
  EXPECT_EQ(m.revision, kCommit);
  EXPECT_EQ(m.refs, std::vector<std::string>{"main"});
  EXPECT_EQ(m.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(m.model_type, "qwen3_moe");
  EXPECT_EQ(m.quantization, "none");
  EXPECT_GT(m.n_parameters, 100'000u);
  EXPECT_GT(m.experts_bytes, 0u);
  EXPECT_LT(m.experts_bytes, m.size_bytes);
  EXPECT_FALSE(m.has_vision);
  EXPECT_FALSE(m.decode_speed);
  EXPECT_EQ(display_name(m), "org/tiny");
}

TEST_F(RegistryTest, BrokenModelsAreSkippedWithAReason) {
  put_in_cache("models--org--tiny", kCommit, "main");
  const fs::path broken = folder_.path() / "mine" / "broken";
  write_text(broken / "config.json", "{}");
  write_text(broken / "model.safetensors", "not one");
  write_text(folder_.path() / "mine" / "cut.gguf", "GGUF");
  write_text(folder_.path() / "mine" / "other" / "config.json", "{}");
  write_text(folder_.path() / "mine" / "other" / "pytorch_model.bin", "x");
  Registry registry = open();

  const auto report = registry.scan(options_, {folder_.path() / "mine"});

  ASSERT_TRUE(report);
  EXPECT_EQ(report->n_models, 1u);
  ASSERT_EQ(report->skipped.size(), 3u);
  EXPECT_EQ(report->skipped[0].path, broken);
  EXPECT_THAT(report->skipped[0].reason, HasSubstr("model.safetensors"));
  EXPECT_EQ(report->skipped[1].path, folder_.path() / "mine" / "cut.gguf");
  EXPECT_THAT(report->skipped[2].reason, HasSubstr("neither safetensors nor GGUF"));
}

TEST_F(RegistryTest, FoldersGivenOnceAreScannedAgain) {
  put_model(folder_.path() / "mine" / "deep" / "a");
  Registry registry = open();
  ASSERT_TRUE(registry.scan(options_, {folder_.path() / "mine"}));
  put_model(folder_.path() / "mine" / "b");

  const auto again = registry.scan(options_);

  ASSERT_TRUE(again);
  EXPECT_EQ(again->n_models, 2u);
  EXPECT_EQ(again->n_read, 1u);
  fs::remove_all(folder_.path() / "mine" / "b");
  EXPECT_EQ(registry.scan(options_)->n_gone, 1u);
  EXPECT_EQ(registry.models()->size(), 1u);
}

TEST_F(RegistryTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(open().scan(options_, {folder_.path() / "nowhere"}));
}

TEST_F(RegistryTest, SpeedsLastUntilTheFilesChange) {
  const fs::path path = put_in_cache("models--org--tiny", kCommit, "main");
  {
    Registry registry = open();
    ASSERT_TRUE(registry.scan(options_));
    ASSERT_TRUE(registry.record_speed(path, 1000, 50.5));
  }
  Registry registry = open();
  ASSERT_TRUE(registry.scan(options_));
  EXPECT_EQ(registry.models()->front().decode_speed, 50.5);

  write_text(path / "config.json", testing::file_text(path / "config.json") + "\n");
  ASSERT_TRUE(registry.scan(options_));
  EXPECT_EQ(registry.models()->front().decode_speed, std::nullopt);
}

TEST_F(RegistryTest, AMachineIsMeasuredOnce_FIT_16) {
  Registry registry = open();
  const auto before = registry.machine_rates("host/cpu-avx512/2");

  ASSERT_TRUE(registry.record_machine_rates("host/cpu-avx512/2", {28e9, 4e11}));
  const auto after = open().machine_rates("host/cpu-avx512/2");

  ASSERT_TRUE(before && after);
  EXPECT_FALSE(before->has_value());
  ASSERT_TRUE(after->has_value());
  EXPECT_EQ((*after)->bytes_per_second, 28e9);
  EXPECT_EQ((*after)->flops_per_second, 4e11);
}

TEST_F(RegistryTest, ADamagedFileIsMadeAnew) {
  put_in_cache("models--org--tiny", kCommit, "main");
  { ASSERT_TRUE(open().scan(options_)); }
  std::string bytes = testing::file_text(options_.registry);
  ASSERT_GT(bytes.size(), 4096u);
  const std::string garbage(1000, '\x5a');
  const std::string damaged[] = {
      "this is no database, but quite long text of another kind " + bytes, bytes.substr(0, 5000),
      bytes.replace(4096, 1000, garbage)};
  for (const std::string& text : damaged) {
    write_text(options_.registry, text);
    auto registry = Registry::open(options_.registry);
    ASSERT_TRUE(registry) << registry.error().what;
    ASSERT_TRUE(registry->scan(options_));
    EXPECT_EQ(registry->models()->size(), 1u);
  }
}

TEST_F(RegistryTest, AFileOfAnotherVersionIsMadeAnew) {
  { ASSERT_TRUE(open().scan(options_)); }
  std::string bytes = testing::file_text(options_.registry);
  bytes[63] = 77;  // user_version, big-endian at byte 60
  write_text(options_.registry, bytes);

  auto registry = Registry::open(options_.registry);

  ASSERT_TRUE(registry) << registry.error().what;
  EXPECT_TRUE(registry->scan(options_));
}

TEST_F(RegistryTest, ManyConnectionsWorkAtOnce) {
  put_in_cache("models--org--tiny", kCommit, "main");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        auto registry = Registry::open(options_.registry);
        ASSERT_TRUE(registry) << registry.error().what;
        const auto report = registry->scan(options_);
        ASSERT_TRUE(report) << report.error().what;
        EXPECT_EQ(report->n_models, 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open().models()->size(), 1u);
}

TEST_F(RegistryTest, AQueryIsAPathARepositoryOrAUniquePart) {
  const std::string old_commit(40, 'a');
  put_in_cache("models--org--tiny", kCommit, "main");
  put_in_cache("models--org--tiny", old_commit, "v1");
  put_in_cache("models--org--tiny-chat", kCommit, "main");
  put_model(folder_.path() / "mine" / "local");
  Registry registry = open();
  ASSERT_TRUE(registry.scan(options_, {folder_.path() / "mine"}));

  EXPECT_EQ(registry.find((folder_.path() / "mine/local").string())->path,
            folder_.path() / "mine/local");
  EXPECT_EQ(registry.find("org/tiny")->revision, kCommit);
  EXPECT_EQ(registry.find("ORG/Tiny")->revision, kCommit);
  EXPECT_EQ(registry.find("org/tiny@v1")->revision, old_commit);
  EXPECT_EQ(registry.find("org/tiny@aaaaaaaa")->revision, old_commit);
  EXPECT_EQ(registry.find("chat")->repo, "org/tiny-chat");
  EXPECT_EQ(registry.find("tiny").error().what,
            "'tiny' matches several models: org/tiny, org/tiny-chat");
  EXPECT_EQ(registry.find("qwen").error().what, "no local model matches 'qwen'; try kvasir get");
  EXPECT_EQ(registry.find("").error().what, "no local model matches ''; try kvasir get");
  EXPECT_EQ(registry.find("org/tiny@v2").error().code, Errc::not_found);
}

// SRV-82: what `ls` shows without --all-revisions.
TEST_F(RegistryTest, OnlyRefsMainIsMain) {
  put_in_cache("models--org--tiny", kCommit, "main");
  put_in_cache("models--org--tiny", std::string(40, 'a'), "v1");
  put_in_cache("models--org--tiny", std::string(40, 'b'), "");
  Registry registry = open();
  ASSERT_TRUE(registry.scan(options_));

  const auto models = *registry.models();

  ASSERT_EQ(models.size(), 3u);
  EXPECT_TRUE(is_main(models[0]));
  EXPECT_FALSE(is_main(models[1]) || is_main(models[2]));
  EXPECT_EQ(registry.find("@v1").error().code, Errc::not_found);

  write_text(options_.cache / "models--org--tiny/refs/main", std::string(40, 'b'));
  EXPECT_EQ(registry.find("tiny")->revision, std::string(40, 'b'));  // refs are read anew
}

TEST_F(RegistryTest, APathNeedNotHaveBeenScanned) {
  const auto found = find_model({}, sample("llama").string());

  ASSERT_TRUE(found) << found.error().what;
  EXPECT_EQ(found->model_type, "llama");
}

TEST_F(RegistryTest, VisionIsSeenInTheConfiguration) {
  const fs::path path = folder_.path() / "v";
  put_model(path);
  std::string config = testing::file_text(path / "config.json");
  config.insert(config.find('{') + 1, "\"vision_config\": {},");
  write_text(path / "config.json", config);

  EXPECT_TRUE(describe_model(path)->has_vision);
}

TEST_F(RegistryTest, TheLibraryShowsItsLastPicture) {
  auto library = Library::open(options_);
  ASSERT_TRUE(library);
  EXPECT_TRUE((*library)->models()->empty());
  put_in_cache("models--org--tiny", kCommit, "main");

  ASSERT_TRUE((*library)->refresh());

  EXPECT_EQ((*library)->models()->size(), 1u);
  EXPECT_TRUE((*library)->find("tiny"));
  const std::string text = json::write(to_json(*(*library)->models()));
  EXPECT_THAT(text, HasSubstr("{\"models\":[{\"name\":\"org/tiny\""));
}

TEST_F(RegistryTest, ALibraryWithoutAWritableRegistryWorksInMemory) {
  write_text(folder_.path() / "file", "x");
  options_.registry = folder_.path() / "file" / "registry.sqlite";

  EXPECT_TRUE(Library::open(options_));
}

}  // namespace
}  // namespace kvasir::hub
