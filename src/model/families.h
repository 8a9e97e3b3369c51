// The model families: the only list. A family is one file in families/ that fills a DecoderConfig,
// and one line here: function, architecture, model_type, whether a reference checkpoint proves it
// (else loading says `untested family`).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/model_files.h"
#include "model/decoder_config.h"

// A macro because one line has to both declare the family's function and list it.
#define KVASIR_MODEL_FAMILIES(FAMILY)                                             \
  FAMILY(llama, "LlamaForCausalLM", "llama", true)                                \
  FAMILY(llama, "IQuestCoderForCausalLM", "iquestcoder", false)                   \
  FAMILY(mistral, "MistralForCausalLM", "mistral", true)                          \
  FAMILY(mixtral, "MixtralForCausalLM", "mixtral", true)                          \
  FAMILY(qwen2, "Qwen2ForCausalLM", "qwen2", true)                                \
  FAMILY(qwen3, "Qwen3ForCausalLM", "qwen3", true)                                \
  FAMILY(qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe", true)                     \
  FAMILY(phi3, "Phi3ForCausalLM", "phi3", true)                                   \
  FAMILY(olmo2, "Olmo2ForCausalLM", "olmo2", true)                                \
  FAMILY(glm4, "Glm4ForCausalLM", "glm4", true)                                   \
  FAMILY(glm4_moe, "Glm4MoeForCausalLM", "glm4_moe", true)                        \
  FAMILY(deepseek_v3, "DeepseekV3ForCausalLM", "deepseek_v3", true)               \
  FAMILY(glm_moe_dsa, "GlmMoeDsaForCausalLM", "glm_moe_dsa", true)                \
  FAMILY(granite, "GraniteForCausalLM", "granite", true)                          \
  FAMILY(smollm3, "SmolLM3ForCausalLM", "smollm3", true)                          \
  FAMILY(gemma, "GemmaForCausalLM", "gemma", false)                               \
  FAMILY(gemma2, "Gemma2ForCausalLM", "gemma2", true)                             \
  FAMILY(gemma3, "Gemma3ForCausalLM", "gemma3_text", true)                        \
  FAMILY(gemma3, "Gemma3ForConditionalGeneration", "gemma3", true)                \
  FAMILY(gemma4, "Gemma4ForCausalLM", "gemma4_text", true)                        \
  FAMILY(gemma4, "Gemma4ForConditionalGeneration", "gemma4", true)                \
  FAMILY(gemma4, "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", true) \
  FAMILY(gemma4, "Gemma4UnifiedForCausalLM", "gemma4_unified_text", true)         \
  FAMILY(cohere2, "Cohere2ForCausalLM", "cohere2", true)                          \
  FAMILY(gpt_oss, "GptOssForCausalLM", "gpt_oss", true)                           \
  FAMILY(qwen3_next, "Qwen3NextForCausalLM", "qwen3_next", true)                  \
  FAMILY(qwen3_5, "Qwen3_5ForCausalLM", "qwen3_5_text", true)                     \
  FAMILY(qwen3_5, "Qwen3_5ForConditionalGeneration", "qwen3_5", true)             \
  FAMILY(qwen3_5_moe, "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", true)          \
  FAMILY(qwen3_5_moe, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", true)  \
  FAMILY(lfm2, "Lfm2ForCausalLM", "lfm2", true)                                   \
  FAMILY(starcoder2, "Starcoder2ForCausalLM", "starcoder2", false)                \
  FAMILY(bert, "BertModel", "bert", true)                                         \
  FAMILY(modernbert, "ModernBertModel", "modernbert", true)

namespace kvasir::model {

class ConfigReader;

namespace families {
#define KVASIR_DECLARE_FAMILY(function, architecture, model_type, has_golden) \
  DecoderConfig function(const ConfigReader& config);
KVASIR_MODEL_FAMILIES(KVASIR_DECLARE_FAMILY)
#undef KVASIR_DECLARE_FAMILY
}  // namespace families

struct ModelFamily {
  std::string_view name;
  std::string_view architecture;
  std::string_view model_type;
  bool has_golden = false;
  DecoderConfig (*describe)(const ConfigReader& config) = nullptr;
};

#define KVASIR_LIST_FAMILY(function, architecture, model_type, has_golden) \
  ModelFamily{#function, architecture, model_type, has_golden, &families::function},
inline constexpr ModelFamily kFamilies[] = {KVASIR_MODEL_FAMILIES(KVASIR_LIST_FAMILY)};
#undef KVASIR_LIST_FAMILY

// By architecture when config.json names a known one or its trunk ("Qwen3Model"), else by
// model_type. Errc::unsupported with MOD-5's text.
Result<const ModelFamily*> find_family(const json::Value& config);

// The data sheet of a model on disk, without touching its weights. max_context: positions to serve,
// 0 = the model's own; more than the model allows is refused.
Result<DecoderConfig> describe_model(const formats::ModelFiles& files, std::uint32_t max_context);

}  // namespace kvasir::model
