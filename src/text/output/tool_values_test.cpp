// Values against the schema (TXT-42), and what is particular to one format.
#include "text/output/json_scan.h"
#include "text/output/python_calls.h"
#include "text/output/test_output.h"
#include "text/output/xml_calls.h"

namespace kvasir::text {
namespace {

// The arguments of the one call in the text; "": there is none.
std::string arguments_of(ToolFormat format, const std::string& text) {
  const Parsed parsed = parse_text(byte_tokenizer(), tool_options(format), text);
  return parsed.calls.size() == 1 ? parsed.calls[0].arguments : "";
}

std::string glm_value(const std::string& key, const std::string& value) {
  return arguments_of(ToolFormat::glm, "<tool_call>get_weather\n<arg_key>" + key +
                                           "</arg_key>\n<arg_value>" + value +
                                           "</arg_value>\n</tool_call>");
}

TEST(ToolValues, StringParametersStayVerbatim) {
  EXPECT_EQ(glm_value("city", "5"), R"({"city":"5"})");
  EXPECT_EQ(glm_value("city", "true"), R"({"city":"true"})");
  EXPECT_EQ(glm_value("city", "{\"a\":1}"), R"({"city":"{\"a\":1}"})");
  EXPECT_EQ(glm_value("city", "  \"x\" \n"), R"({"city":"  \"x\" \n"})");
  EXPECT_EQ(glm_value("city", ""), R"({"city":""})");
  EXPECT_EQ(glm_value("ref", "12"), R"({"ref":"12"})") << "$ref into $defs";
}

TEST(ToolValues, OthersAreJsonAndFallBackToAString) {
  EXPECT_EQ(glm_value("days", " 7 "), R"({"days":7})");
  EXPECT_EQ(glm_value("days", "a week"), R"({"days":"a week"})");
  EXPECT_EQ(glm_value("where", "{\"b\": [1, 2], \"a\": null}"),
            R"({"where":{"b":[1,2],"a":null}})");
  EXPECT_EQ(glm_value("where", "{'b': 1}"), R"({"where":"{'b': 1}"})");
  EXPECT_EQ(glm_value("any", "[1, \"x\"]"), R"({"any":[1,"x"]})");
  EXPECT_EQ(glm_value("any", "plain"), R"({"any":"plain"})");
  EXPECT_EQ(glm_value("unheard", "4"), R"({"unheard":4})");
  EXPECT_EQ(glm_value("metric", "True"), R"({"metric":true})") << "templates print Python's";
  EXPECT_EQ(glm_value("opt", "null"), R"({"opt":null})");
  EXPECT_EQ(glm_value("opt", "None"), R"({"opt":null})");
}

TEST(ToolValues, AStringAmongOtherTypesYieldsToThemOnlyWhenTheyFit) {
  EXPECT_EQ(glm_value("note", "null"), R"({"note":null})");
  EXPECT_EQ(glm_value("note", "5"), R"({"note":"5"})");
  EXPECT_EQ(glm_value("either", "5"), R"({"either":5})");
  EXPECT_EQ(glm_value("either", "[5]"), R"({"either":"[5]"})");
  EXPECT_EQ(glm_value("choice", "5"), R"({"choice":"5"})") << "the enum holds strings";
}

TEST(ToolValues, NumbersKeepTheirDigits) {
  EXPECT_EQ(glm_value("any", "12345678901234567890123"), R"({"any":12345678901234567890123})");
  EXPECT_EQ(
      arguments_of(
          ToolFormat::hermes,
          R"(<tool_call>{"name":"get_weather","arguments":{"days":98765432109876543210,"x":1.50}}</tool_call>)"),
      R"({"days":98765432109876543210,"x":1.50})");
}

TEST(ToolValues, DeepOrHugeJsonIsNoCallAndHarmsNothing) {
  const std::string deep = "{\"name\":\"get_weather\",\"arguments\":" + std::string(5000, '[') +
                           std::string(5000, ']') + "}";
  const std::string text = "<tool_call>" + deep + "</tool_call>";
  const Parsed parsed = parse_text(byte_tokenizer(), tool_options(ToolFormat::hermes), text);
  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content, text);
  EXPECT_EQ(arguments_of(ToolFormat::lfm2,
                         "<|tool_call_start|>[get_weather(any=" + std::string(500, '[') +
                             std::string(500, ']') + ")]<|tool_call_end|>"),
            "");
  EXPECT_EQ(
      arguments_of(ToolFormat::gemma4, "<|tool_call>call:get_weather{any:" + std::string(500, '[') +
                                           std::string(500, ']') + "}<tool_call|>"),
      "");
}

TEST(ToolValues, ASchemaThatRefersToItselfEnds) {
  OutputOptions options = tool_options(ToolFormat::glm);
  options.tools = *json::parse(R"([{"type":"function","function":{"name":"f","parameters":{
      "properties":{"a":{"$ref":"#/properties/a","anyOf":[{"$ref":"#/properties/a"},
      {"$ref":"#/properties/a"},{"$ref":"#/properties/a"}]}}}}}])")
                       ->as_array();
  const Parsed parsed =
      parse_text(byte_tokenizer(), options,
                 "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments, R"({"a":1})");
}

TEST(JsonCalls, ArgumentsMayBeAStringNullOrAbsent) {
  const auto hermes = [](const std::string& body) {
    return arguments_of(ToolFormat::hermes, "<tool_call>" + body + "</tool_call>");
  };
  EXPECT_EQ(hermes(R"({"name":"get_weather","arguments":"{\"city\": \"Oslo\"}"})"),
            R"({"city":"Oslo"})");
  EXPECT_EQ(hermes(R"({"name":"now","arguments":null})"), "{}");
  EXPECT_EQ(hermes(R"({"name":"now"})"), "{}");
  EXPECT_EQ(hermes(R"({"type":"function","function":{"name":"now","arguments":{}}})"), "{}");
  EXPECT_EQ(hermes(R"({"arguments":{"city":"O"},"name":"get_weather"})"), R"({"city":"O"})");
  EXPECT_EQ(hermes(R"({"name":"now","arguments":[1]})"), "");
  EXPECT_EQ(hermes(R"({"name":"now","arguments":"oops"})"), "");
  EXPECT_EQ(hermes(R"({"name":7})"), "");
  EXPECT_EQ(hermes(R"({"name":"now","arguments":{"a":}})"), "");
  EXPECT_EQ(hermes(R"({'name':'now'})"), "");
}

TEST(JsonCalls, AClosingMarkerInsideAStringIsNoEnd) {
  EXPECT_EQ(
      arguments_of(
          ToolFormat::hermes,
          R"(<tool_call>{"name":"get_weather","arguments":{"city":"</tool_call> <tool_call>{"}}</tool_call>)"),
      R"({"city":"</tool_call> <tool_call>{"})");
}

TEST(QwenXml, OneLineBreakAtEachEndOfAValueIsMarkup) {
  const auto value = [](const std::string& text) {
    return arguments_of(ToolFormat::qwen_xml,
                        "<tool_call>\n<function=get_weather>\n<parameter=city>" + text +
                            "</parameter>\n</function>\n</tool_call>");
  };
  EXPECT_EQ(value("\nOslo\n"), R"({"city":"Oslo"})");
  EXPECT_EQ(value("\n\n Oslo\n\n\n"), R"({"city":"\n Oslo\n\n"})");
  EXPECT_EQ(value("Oslo"), R"({"city":"Oslo"})");
  EXPECT_EQ(value("\n</function></tool_call><x>\n"), R"({"city":"</function></tool_call><x>"})");
}

TEST(MiniCpm, CdataAndEntitiesAreDecoded) {
  const auto value = [](const std::string& text) {
    return arguments_of(
        ToolFormat::minicpm,
        "<function name=\"get_weather\"><param name=\"city\">" + text + "</param></function>");
  };
  EXPECT_EQ(value("a &lt;b&gt; &amp;amp; &quot;&apos; &#65;&#x1F600;"),
            "{\"city\":\"a <b> &amp; \\\"' A😀\"}");
  EXPECT_EQ(value("&nope; &#xD800; &; &#;"), R"({"city":"&nope; &#xD800; &; &#;"})");
  EXPECT_EQ(value("<![CDATA[if a < b && c:\n  </param></function> &lt;]]>"),
            R"({"city":"if a < b && c:\n  </param></function> &lt;"})");
  EXPECT_EQ(value("x<![CDATA[<]]>y&lt;<![CDATA[>]]>"), R"({"city":"x<y<>"})");
}

TEST(DeepSeek, ParametersOfTheTagDialectSayWhetherTheyAreStrings) {
  EXPECT_EQ(arguments_of(ToolFormat::deepseek,
                         "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
                         "<｜DSML｜parameter name=\"any\" string=\"true\">5</｜DSML｜parameter>\n"
                         "<｜DSML｜parameter name=\"days\" string=\"false\">5</｜DSML｜parameter>\n"
                         "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
            R"({"any":"5","days":5})");
}

TEST(DeepSeek, ATagWhoseMiddleIsASpecialTokenIsRead) {
  const Tokenizer t = byte_tokenizer({"｜DSML｜"});
  const Parsed parsed = parse_text(t, tool_options(ToolFormat::deepseek),
                                   "Hi\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n"
                                   "</｜DSML｜invoke>\n</｜DSML｜function_calls>");
  EXPECT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.content, "Hi\n\n");
}

TEST(Lfm2, PythonLiteralsBecomeJson) {
  const auto f = [](const std::string& arguments) {
    return arguments_of(ToolFormat::lfm2,
                        "<|tool_call_start|>[get_weather(" + arguments + ")]<|tool_call_end|>");
  };
  EXPECT_EQ(f("metric=True, opt=None, any=False"), R"({"metric":true,"opt":null,"any":false})");
  EXPECT_EQ(f("any=(1, 2,), where={'a': [1, {}], \"b\": .5}"),
            R"({"any":[1,2],"where":{"a":[1,{}],"b":0.5}})");
  EXPECT_EQ(f(R"(city='it\'s \x41 \u00e9 \U0001F600 \\ \q')"),
            "{\"city\":\"it's A é 😀 \\\\ \\\\q\"}");
  EXPECT_EQ(f("city='it's fine', days=1_000"), R"({"city":"it's fine","days":1000})");
  EXPECT_EQ(f("days=+3, any=5., opt=-1e3"), R"({"days":3,"any":5.0,"opt":-1e3})");
  EXPECT_EQ(f("city=01234"), R"({"city":"01234"})") << "bare, but a string by the schema";
  EXPECT_EQ(f(" city = \"a, b) c\" , "), R"({"city":"a, b) c"})");
  EXPECT_EQ(f("\"positional\""), "");
  EXPECT_EQ(f("city="), "");
  EXPECT_EQ(f("city='open"), "");
  EXPECT_EQ(f("any=os.getcwd()"), "");
  EXPECT_EQ(
      arguments_of(ToolFormat::lfm2,
                   "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>"),
      "{}");
}

TEST(Gemma4, BareValuesKeysAndSpacesAreRead) {
  const auto f = [](const std::string& arguments) {
    return arguments_of(ToolFormat::gemma4,
                        "<|tool_call>call:get_weather" + arguments + "<tool_call|>");
  };
  EXPECT_EQ(f("{city:01, days: 2 , metric:true,opt:null}"),
            R"({"city":"01","days":2,"metric":true,"opt":null})");
  EXPECT_EQ(f("{<|\"|>city<|\"|>:<|\"|>a\"b}<tool_call|>,:{<|\"|>}"),
            R"({"city":"a\"b}<tool_call|>,:{"})");
  EXPECT_EQ(f("{where:{a:[1,<|\"|>x<|\"|>,word,None]}}"), R"({"where":{"a":[1,"x","word",null]}})");
  EXPECT_EQ(f("{city:}"), "");
  EXPECT_EQ(f("{city}"), "");
  EXPECT_EQ(f("{a<|tool_call>b:1}"), "") << "a marker is no part of a bare key";
  EXPECT_EQ(f("{city:<|\"|>open}"), "");
  EXPECT_EQ(f("{} tail"), "");
}

TEST(Llama3, JsonThatIsNoCallIsContentAndStreamsOnceThatIsClear) {
  const OutputOptions options = tool_options(ToolFormat::llama3);
  const Tokenizer t = byte_tokenizer();
  for (const std::string text :
       {R"({"answer": 42, "name": "now"})", R"({"name": "Bob", "parameters": {}})",
        R"({"name": "now", "x": {}})", R"({ })", R"([1, 2])", R"({"name": "now")",
        R"({"name": 5, "parameters": {}})"}) {
    const Parsed parsed = parse_text(t, options, text);
    EXPECT_TRUE(parsed.calls.empty()) << text;
    EXPECT_EQ(parsed.content, text);
  }
  auto parser = OutputParser::make(t, options);
  std::string early;
  for (const TokenId id : ids_of(t, R"( {"answer": )")) {
    for (const OutputPiece& piece : parser->push(id)) early += piece.text;
  }
  EXPECT_EQ(early, R"( {"answer": )");
}

TEST(Llama3, ACallMustBeginTheMessageAndMayEndWithAMarker) {
  const OutputOptions options = tool_options(ToolFormat::llama3);
  const std::string call = R"({"name": "now", "parameters": {}})";
  EXPECT_TRUE(parse_text(byte_tokenizer(), options, "Sure: " + call).calls.empty());
  EXPECT_EQ(parse_text(byte_tokenizer(), options, "\n " + call).calls.size(), 1u);
  const Tokenizer t = byte_tokenizer({"<|python_tag|>", "<|eom_id|>", "<|eot_id|>"});
  for (const std::string& text : {"<|python_tag|>" + call + "<|eom_id|>", call + "<|eot_id|>",
                                  "<|python_tag|>" + call + " ; " + call + "\n<|eom_id|>"}) {
    const Parsed parsed = parse_text(t, options, text);
    EXPECT_GE(parsed.calls.size(), 1u) << text;
    EXPECT_EQ(parsed.content, "") << text;
  }
}

TEST(Llama3, BuiltInToolsAreCalledAsPython) {
  const OutputOptions options = tool_options(ToolFormat::llama3);
  const Tokenizer t = byte_tokenizer({"<|python_tag|>", "<|eom_id|>"});
  for (const std::string end : {"<|eom_id|>", ""}) {
    const Parsed parsed =
        parse_text(t, options, "<|python_tag|>get_weather.call(city=\"Oslo\")" + end);
    ASSERT_EQ(parsed.calls.size(), 1u);
    EXPECT_EQ(parsed.calls[0].arguments, R"({"city":"Oslo"})");
  }
  EXPECT_EQ(parse_text(t, options, "<|python_tag|>print(1)<|eom_id|>").content,
            "<|python_tag|>print(1)<|eom_id|>");
}

TEST(JsonScan, SlicesKeepTheWritersText) {
  const auto members = out::json_members(R"( { "a" : 1.50 , "b\n" : [ 1, {"x":"}"} ] , "c":{} } )");
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].second, "1.50");
  EXPECT_EQ(members[1].first, "b\n");
  EXPECT_EQ(members[1].second, R"([ 1, {"x":"}"} ])");
  EXPECT_EQ(out::json_compact(R"({ "a b" : [ 1 , "c\" d" ] })"), R"({"a b":[1,"c\" d"]})");
  EXPECT_EQ(out::json_items(R"([ 1 , "a,b" , [2,3], {} ])").size(), 4u);
  EXPECT_TRUE(out::json_items("[ ]").empty());
  EXPECT_TRUE(out::json_members("{ }").empty());
}

}  // namespace
}  // namespace kvasir::text
