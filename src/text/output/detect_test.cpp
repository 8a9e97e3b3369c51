// The format of a chat template (TXT-40), for all the real ones that there are.
#include <filesystem>
#include <map>

#include "base/file.h"
#include "text/output/test_output.h"

namespace kvasir::text {
namespace {

namespace fs = std::filesystem;
using T = ToolFormat;
using R = ReasoningFormat;

struct Expected {
  T tools;
  R reasoning;
};

// Read off the templates. Formats that no parser here knows count as none.
const std::map<std::string, Expected>& expected() {
  static const std::map<std::string, Expected> kAll{
      {"Apertus-8B-Instruct", {T::none, R::none}},
      {"Apriel-1.6-15b-Thinker-fixed", {T::none, R::none}},
      {"Bielik-11B-v3.0-Instruct", {T::hermes, R::think}},
      {"ByteDance-Seed-OSS", {T::qwen_xml, R::think}},
      {"Cohere2MoE", {T::cohere, R::think}},
      {"CohereForAI-c4ai-command-r-plus-tool_use", {T::none, R::none}},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", {T::cohere, R::think}},
      {"GLM-4.6", {T::glm, R::think}},
      {"GLM-4.7-Flash", {T::glm, R::think}},
      {"GigaChat3-10B-A1.8B", {T::none, R::none}},
      {"GigaChat3.1-10B-A1.8B", {T::none, R::none}},
      {"HuggingFaceTB-SmolLM3-3B", {T::none, R::think}},  // this copy renders no tools
      {"Kimi-K2-Instruct", {T::kimi, R::none}},
      {"Kimi-K2-Thinking", {T::kimi, R::think}},
      {"Kimi-K3", {T::none, R::none}},
      {"LFM2-8B-A1B", {T::lfm2, R::none}},
      {"LFM2.5-8B-A1B", {T::lfm2, R::think}},
      {"LFM2.5-Instruct", {T::lfm2, R::think}},
      {"MiMo-VL", {T::hermes, R::none}},
      {"MiniMax-M1", {T::none, R::none}},
      {"MiniMax-M2", {T::minimax, R::think}},
      {"MiniMax-M3", {T::none, R::think}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {T::mistral, R::none}},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {T::qwen_xml, R::think}},
      {"NVIDIA-Nemotron-Nano-v2", {T::none, R::think}},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {T::hermes, R::none}},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", {T::hermes, R::none}},
      {"Qwen-QwQ-32B", {T::hermes, R::think}},
      {"Qwen-Qwen2.5-7B-Instruct", {T::hermes, R::none}},
      {"Qwen-Qwen3-0.6B", {T::hermes, R::think}},
      {"Qwen3-Coder", {T::qwen_xml, R::none}},
      {"Qwen3.5-4B", {T::qwen_xml, R::think}},
      {"Reka-Edge", {T::hermes, R::think}},
      {"StepFun3.5-Flash", {T::qwen_xml, R::think}},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {T::deepseek, R::think}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {T::deepseek, R::think}},
      {"deepseek-ai-DeepSeek-V3.1", {T::deepseek, R::think}},
      {"deepseek-ai-DeepSeek-V3.2", {T::deepseek, R::think}},
      {"deepseek-ai-DeepSeek-V4", {T::deepseek, R::think}},
      {"deepseek-ai-DeepSeek-V4-Flash-0731", {T::deepseek, R::think}},
      {"fireworks-ai-llama-3-firefunction-v2", {T::none, R::none}},
      {"google-gemma-2-2b-it", {T::none, R::none}},
      {"google-gemma-4-31B-it", {T::gemma4, R::gemma}},
      {"google-gemma-4-31B-it-interleaved", {T::gemma4, R::gemma}},
      {"ibm-granite-granite-3.3-2B-Instruct", {T::granite, R::granite}},
      {"ibm-granite-granite-4.0", {T::granite, R::none}},
      {"ibm-granite-granite-4.1", {T::granite, R::none}},
      {"llama-cpp-deepseek-r1", {T::deepseek, R::think}},
      {"llama-cpp-rwkv-world", {T::none, R::think}},
      {"meetkai-functionary-medium-v3.1", {T::none, R::none}},
      {"meetkai-functionary-medium-v3.2", {T::none, R::none}},
      {"meta-llama-Llama-3.1-8B-Instruct", {T::llama3, R::none}},
      {"meta-llama-Llama-3.2-3B-Instruct", {T::llama3, R::none}},
      {"meta-llama-Llama-3.3-70B-Instruct", {T::llama3, R::none}},
      {"microsoft-Phi-3.5-mini-instruct", {T::none, R::none}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {T::mistral, R::bracket_think}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {T::mistral, R::none}},
      {"moonshotai-Kimi-K2", {T::kimi, R::none}},
      {"muse-glimmer", {T::none, R::none}},
      {"openai-gpt-oss-120b", {T::harmony, R::harmony}},
      {"openbmb-MiniCPM5-1B", {T::minicpm, R::think}},
      {"poolside-Laguna-S-2.1", {T::glm, R::think}},
      {"poolside-Laguna-XS-2.1", {T::glm, R::think}},
      {"poolside-Laguna-XS.2", {T::glm, R::think}},
      {"tencent-Hy3", {T::none, R::none}},
      {"unsloth-Apriel-1.5", {T::none, R::none}},
      {"unsloth-mistral-Devstral-Small-2507", {T::mistral, R::none}},
      {"upstage-Solar-Open-100B", {T::none, R::none}}};
  return kAll;
}

// How many templates of the folder were looked at.
std::size_t check_folder(const fs::path& folder) {
  std::size_t n = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto source = read_file(entry.path(), 1u << 20);
    const auto wanted = expected().find(entry.path().stem().string());
    if (!source || wanted == expected().end()) {
      ADD_FAILURE() << entry.path();
      continue;
    }
    const OutputFormat found = detect_output_format(*source);
    EXPECT_EQ(name_of(found.tools), name_of(wanted->second.tools)) << entry.path().stem();
    EXPECT_EQ(name_of(found.reasoning), name_of(wanted->second.reasoning)) << entry.path().stem();
    ++n;
  }
  return n;
}

TEST(DetectOutputFormat, OfTheSampleOfRealTemplates) {
  EXPECT_GE(check_folder(fs::path(KVASIR_TEST_DATA) / "templates/sample"), 4u);
}

TEST(DetectOutputFormat, OfAllRealTemplates) {
  const fs::path folder = fs::path(KVASIR_SHARED) / "templates";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared folder";
  EXPECT_EQ(check_folder(folder), expected().size());
}

TEST(DetectOutputFormat, NothingIsFoundWhereNothingIs) {
  EXPECT_EQ(detect_output_format("").tools, T::none);
  EXPECT_EQ(detect_output_format("{{ messages[0].content }}").reasoning, R::none);
  EXPECT_EQ(detect_output_format("Say <tool_call> and stop.").tools, T::none);
}

}  // namespace
}  // namespace kvasir::text
