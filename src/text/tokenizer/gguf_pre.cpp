#include "text/tokenizer/gguf_pre.h"

#include <array>

namespace kvasir::text::tok {
namespace {

using sv = std::string_view;

constexpr sv kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr sv kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr sv kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr sv kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words by case, as in o200k: capitals then small letters, or capitals only; a contraction may
// follow.
#define KVASIR_CASED_WORDS(contraction)                                                         \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" contraction \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" contraction
#define KVASIR_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
#define KVASIR_CASED_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr sv kGpt4o = KVASIR_CASED_WORDS(KVASIR_CONTRACTION) R"(|\p{N}{1,3})" KVASIR_CASED_REST;
constexpr sv kTekken = KVASIR_CASED_WORDS("") R"(|\p{N})" KVASIR_CASED_REST;
constexpr sv kYoutuWords = KVASIR_CASED_WORDS(KVASIR_CONTRACTION) R"(|\p{N})" KVASIR_CASED_REST;
constexpr sv kKimi =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" KVASIR_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)" KVASIR_CONTRACTION
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef KVASIR_CASED_WORDS
#undef KVASIR_CONTRACTION
#undef KVASIR_CASED_REST
constexpr sv kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr sv kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
// Letters with case, as they were when the model was trained; by number, since some look alike.
constexpr sv kDeepseekLetters =
    R"(\s?[)"
    R"(\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF})"
    R"(\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)";

constexpr std::array<sv, 1> kGpt2Set{kGpt2};
constexpr std::array<sv, 1> kLlama3Set{kLlama3};
constexpr std::array<sv, 1> kQwen2Set{kQwen2};
constexpr std::array<sv, 1> kQwen35Set{kQwen35};
constexpr std::array<sv, 1> kGpt4oSet{kGpt4o};
constexpr std::array<sv, 1> kTekkenSet{kTekken};
constexpr std::array<sv, 1> kKimiSet{kKimi};
constexpr std::array<sv, 2> kDigitsGpt2Set{R"(\p{N})", kGpt2};
constexpr std::array<sv, 3> kDeepseek3Set{R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                                          kDeepseek3Words};
constexpr std::array<sv, 6> kDeepseekSet{
    "[\r\n]", kDeepseekLetters,           "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$",  "[一-龥ࠀ-一가-퟿]+", R"(\p{N}+)"};
constexpr std::array<sv, 5> kDeepseekCoderSet{"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                              "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"};
constexpr std::array<sv, 3> kFalconSet{R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"};
constexpr std::array<sv, 4> kDefaultSet{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)",
                                        "[0-9][0-9][0-9]"};
constexpr std::array<sv, 1> kBloomSet{kBloom};
constexpr std::array<sv, 2> kVikingSet{kBloom, R"(\p{N})"};
constexpr std::array<sv, 2> kYoutuSet{
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
    "ゟ゠-"
    "ヿ]"
    "+",
    kYoutuWords};
constexpr std::array<sv, 1> kBailingSet{
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::array<sv, 1> kSeedCoderSet{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<sv, 2> kMinicpm5Set{
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<sv, 2> kTinyAyaSet{R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o};
constexpr std::array<sv, 2> kSuperBpeSet{R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr std::array<sv, 1> kExaoneMoeSet{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::array<sv, 1> kLinesSet{R"([^\n]+|[\n]+)"};
constexpr std::array<sv, 6> kChameleonSet{
    "<sentinel:[0-9]+>",       "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    "([\\t\\n]|    |  )",      R"(\p{N})",
    R"([\p{P}!-/:-@\[-`{-~])", kGpt2};

constexpr GgufPre kPlainGpt2{kGpt2Set};
constexpr GgufPre kDigitsGpt2{kDigitsGpt2Set};
constexpr GgufPre kLlama3Bos{kLlama3Set, /*ignores_merges=*/true, /*adds_bos=*/true};
constexpr GgufPre kLlama3Plain{kLlama3Set};
constexpr GgufPre kQwen2Nfc{kQwen2Set, false, false, /*has_nfc=*/true};
constexpr GgufPre kDeepseek3{kDeepseek3Set};
constexpr GgufPre kGpt4oPlain{kGpt4oSet, /*ignores_merges=*/true};
constexpr GgufPre kPlainLines{kLinesSet, false, false, false, /*has_plain_pieces=*/true};

struct Named {
  sv name;
  GgufPre pre;
};

constexpr std::array kTable{
    Named{"default", {kDefaultSet}},
    Named{"gpt-2", kPlainGpt2},
    Named{"gpt2", kPlainGpt2},
    Named{"phi-2", kPlainGpt2},
    Named{"mpt", kPlainGpt2},
    Named{"olmo", kPlainGpt2},
    Named{"jais", kPlainGpt2},
    Named{"trillion", kPlainGpt2},
    Named{"granite-docling", kPlainGpt2},
    Named{"exaone4", kPlainGpt2},
    Named{"gigachat", kPlainGpt2},
    Named{"mellum", kPlainGpt2},
    Named{"modern-bert", kPlainGpt2},
    Named{"a.x-4.0", kPlainGpt2},
    Named{"jina-es", kPlainGpt2},
    Named{"jina-de", kPlainGpt2},
    Named{"jina-v1-en", kPlainGpt2},
    Named{"jina-v2-es", kPlainGpt2},
    Named{"jina-v2-de", kPlainGpt2},
    Named{"jina-v2-code", kPlainGpt2},
    Named{"roberta-bpe", kPlainGpt2},
    Named{"starcoder", kDigitsGpt2},
    Named{"refact", kDigitsGpt2},
    Named{"granite", kDigitsGpt2},
    Named{"command-r", kDigitsGpt2},
    Named{"smollm", kDigitsGpt2},
    Named{"codeshell", kDigitsGpt2},
    Named{"exaone", kDigitsGpt2},
    Named{"minerva-7b", kDigitsGpt2},
    Named{"mellum2", kDigitsGpt2},
    Named{"llama3", kLlama3Bos},
    Named{"llama-v3", kLlama3Bos},
    Named{"llama-bpe", kLlama3Bos},
    Named{"falcon3", kLlama3Bos},
    Named{"falcon-h1", kLlama3Bos},
    Named{"pixtral", kLlama3Bos},
    Named{"midm-2.0", kLlama3Bos},
    Named{"lfm2", kLlama3Bos},
    Named{"jina-v5-nano", kLlama3Bos},
    Named{"dbrx", kLlama3Plain},
    Named{"smaug-bpe", kLlama3Plain},
    Named{"glm4", kLlama3Plain},
    Named{"chatglm-bpe", kLlama3Plain},
    Named{"qwen2", kQwen2Nfc},
    Named{"deepseek-r1-qwen", kQwen2Nfc},
    Named{"megrez", kQwen2Nfc},
    Named{"kormo", kQwen2Nfc},
    Named{"f2llmv2", kQwen2Nfc},
    Named{"qwen35", {kQwen35Set, false, false, /*has_nfc=*/true}},
    Named{"stablelm2", {kQwen2Set}},
    Named{"hunyuan", {kQwen2Set}},
    Named{"solar-open", {kQwen2Set}},
    Named{"grok-2", {kQwen2Set}},
    Named{"deepseek-llm", {kDeepseekSet}},
    Named{"deepseek-coder", {kDeepseekCoderSet}},
    Named{"deepseek-v3", kDeepseek3},
    Named{"hunyuan-dense", kDeepseek3},
    Named{"joyai-llm", kDeepseek3},
    Named{"hy_v4", kDeepseek3},
    Named{"falcon", {kFalconSet}},
    Named{"gpt-4o", kGpt4oPlain},
    Named{"llama4", kGpt4oPlain},
    Named{"kanana2", kGpt4oPlain},
    Named{"talkie", kGpt4oPlain},
    Named{"minimax-m2", kGpt4oPlain},
    Named{"granite-embed-multi-97m", kGpt4oPlain},
    Named{"tekken", {kTekkenSet, /*ignores_merges=*/true, /*adds_bos=*/true}},
    Named{"kimi-k2", {kKimiSet}},
    Named{"youtu", {kYoutuSet, /*ignores_merges=*/true}},
    Named{"bloom", {kBloomSet}},
    Named{"poro-chat", {kBloomSet}},
    Named{"gpt3-finnish", {kBloomSet}},
    Named{"viking", {kVikingSet}},
    Named{"bailingmoe", {kBailingSet}},
    Named{"bailingmoe2", {kBailingSet}},
    Named{"llada-moe", {kBailingSet}},
    Named{"seed-coder", {kSeedCoderSet}},
    Named{"minicpm5", {kMinicpm5Set, /*ignores_merges=*/true}},
    Named{"tiny_aya", {kTinyAyaSet}},
    Named{"cohere2moe", {kTinyAyaSet}},
    Named{"superbpe", {kSuperBpeSet}},
    Named{"exaone-moe", {kExaoneMoeSet}},
    Named{"chameleon", {kChameleonSet, false, /*adds_bos=*/true}},
    Named{"gemma4", kPlainLines},
    Named{"granite-embed-multi-311m", kPlainLines},
    Named{"sarvam-moe", kPlainLines},
};

}  // namespace

const GgufPre* find_gguf_pre(std::string_view name) noexcept {
  for (const Named& entry : kTable) {
    if (entry.name == name) return &entry.pre;
  }
  return nullptr;
}

}  // namespace kvasir::text::tok
