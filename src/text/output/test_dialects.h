// How the models of each tool format write calls: what the tests of the formats print and parse.
#pragma once

#include "text/output/test_output.h"
#include "text/output/tool_format.h"

namespace kvasir::text {

using json::Value;

struct Call {
  std::string name;
  std::string arguments;  // compact JSON
};

inline std::string python(const Value& v) {
  if (v.is_bool()) return *v.as_bool() ? "True" : "False";
  if (v.is_null()) return "None";
  std::string out;
  if (v.is_array()) {
    for (const Value& item : *v.as_array()) out += (out.empty() ? "" : ", ") + python(item);
    return "[" + out + "]";
  }
  if (v.is_object()) {
    for (const auto& [key, item] : *v.as_object()) {
      out += (out.empty() ? "" : ", ") + python(Value(key)) + ": " + python(item);
    }
    return "{" + out + "}";
  }
  return json::write(v);
}

inline std::string gemma(const Value& v) {
  if (v.is_string()) return "<|\"|>" + *v.as_string() + "<|\"|>";
  std::string out;
  if (v.is_array()) {
    for (const Value& item : *v.as_array()) out += (out.empty() ? "" : ",") + gemma(item);
    return "[" + out + "]";
  }
  if (v.is_object()) {
    for (const auto& [key, item] : *v.as_object()) {
      out += (out.empty() ? "" : ",") + key + ":" + gemma(item);
    }
    return "{" + out + "}";
  }
  return json::write(v);
}

inline std::string plain(const Value& v) { return v.is_string() ? *v.as_string() : json::write(v); }

inline std::string cdata(const Value& v) {
  const std::string text = plain(v);
  return text.find_first_of("<&\n") == std::string::npos ? text : "<![CDATA[" + text + "]]>";
}

using Print = std::string (*)(const Value&);

// One `before key middle value after` a parameter.
inline std::string parameters(const Call& call,
                              const std::string& before,
                              const std::string& middle,
                              const std::string& after,
                              Print print = plain) {
  std::string out;
  const auto arguments = json::parse(call.arguments);
  for (const auto& [key, value] : *arguments->as_object()) {
    out += before + key + middle + print(value) + after;
  }
  return out;
}

inline std::string json_call(const Call& call,
                             const std::string& name,
                             const std::string& arguments) {
  return "{\"" + name + "\": \"" + call.name + "\", \"" + arguments + "\": " + call.arguments + "}";
}

inline std::string json_list(const std::vector<Call>& calls,
                             const std::string& name,
                             const std::string& arguments) {
  std::string out;
  for (const Call& c : calls) out += (out.empty() ? "" : ", ") + json_call(c, name, arguments);
  return "[" + out + "]";
}

template <class Each>
std::string each(const std::vector<Call>& calls, const std::string& between, Each print) {
  std::string out;
  for (std::size_t i = 0; i < calls.size(); ++i) out += (i == 0 ? "" : between) + print(calls[i]);
  return out;
}

inline std::string python_call(const Call& c) {
  std::string list = parameters(c, ", ", "=", "", python);
  return c.name + "(" + (list.empty() ? list : list.substr(2)) + ")";
}

struct Dialect {
  std::string name;
  ToolFormat format;
  std::string (*print)(const std::vector<Call>&);
};

inline const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> kAll{
      {"gemma4", ToolFormat::gemma4,
       [](const std::vector<Call>& calls) {
         return each(calls, "", [](const Call& c) {
           return "<|tool_call>call:" + c.name + gemma(*json::parse(c.arguments)) + "<tool_call|>";
         });
       }},
      {"hermes", ToolFormat::hermes,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<tool_call>\n" + json_call(c, "name", "arguments") + "\n</tool_call>";
         });
       }},
      {"qwen_xml", ToolFormat::qwen_xml,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<tool_call>\n<function=" + c.name + ">\n" +
                  parameters(c, "<parameter=", ">\n", "\n</parameter>\n") +
                  "</function>\n</tool_call>";
         });
       }},
      {"qwen_xml without outer tags", ToolFormat::qwen_xml,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<function=" + c.name + ">\n" +
                  parameters(c, "<parameter=", ">\n", "\n</parameter>\n") + "</function>";
         });
       }},
      {"qwen_xml of Seed-OSS", ToolFormat::qwen_xml,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<seed:tool_call>\n<function=" + c.name + ">\n" +
                  parameters(c, "<parameter=", ">", "</parameter>\n") +
                  "</function>\n</seed:tool_call>";
         });
       }},
      {"minicpm", ToolFormat::minicpm,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<function name=\"" + c.name + "\">" +
                  parameters(c, "<param name=\"", "\">", "</param>", cdata) + "</function>";
         });
       }},
      {"llama3", ToolFormat::llama3,
       [](const std::vector<Call>& calls) {
         return each(calls, "; ", [](const Call& c) { return json_call(c, "name", "parameters"); });
       }},
      {"llama3 with tag", ToolFormat::llama3,
       [](const std::vector<Call>& calls) {
         return "<|python_tag|>" +
                each(calls, "; ", [](const Call& c) { return json_call(c, "name", "parameters"); });
       }},
      {"mistral list", ToolFormat::mistral,
       [](const std::vector<Call>& calls) {
         return "[TOOL_CALLS]" + json_list(calls, "name", "arguments");
       }},
      {"mistral names", ToolFormat::mistral,
       [](const std::vector<Call>& calls) {
         return each(calls, "", [](const Call& c) {
           return "[TOOL_CALLS]" + c.name + "[ARGS]" + c.arguments;
         });
       }},
      {"mistral ids", ToolFormat::mistral,
       [](const std::vector<Call>& calls) {
         return each(calls, "", [](const Call& c) {
           return "[TOOL_CALLS]" + c.name + "[CALL_ID]abcdefghi[ARGS]" + c.arguments;
         });
       }},
      {"deepseek R1", ToolFormat::deepseek,
       [](const std::vector<Call>& calls) {
         return "<｜tool▁calls▁begin｜>" +
                each(calls, "\n",
                     [](const Call& c) {
                       return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + c.name +
                              "\n```json\n" + c.arguments + "\n```<｜tool▁call▁end｜>";
                     }) +
                "<｜tool▁calls▁end｜>";
       }},
      {"deepseek V3.1", ToolFormat::deepseek,
       [](const std::vector<Call>& calls) {
         return "<｜tool▁calls▁begin｜>" +
                each(calls, "",
                     [](const Call& c) {
                       return "<｜tool▁call▁begin｜>" + c.name + "<｜tool▁sep｜>" + c.arguments +
                              "<｜tool▁call▁end｜>";
                     }) +
                "<｜tool▁calls▁end｜>";
       }},
      {"deepseek V3.2", ToolFormat::deepseek,
       [](const std::vector<Call>& calls) {
         return "<｜DSML｜function_calls>\n" +
                each(calls, "\n",
                     [](const Call& c) {
                       return "<｜DSML｜invoke name=\"" + c.name + "\">\n" +
                              parameters(c, "<｜DSML｜parameter name=\"", "\" string=\"false\">",
                                         "</｜DSML｜parameter>\n") +
                              "</｜DSML｜invoke>";
                     }) +
                "\n</｜DSML｜function_calls>";
       }},
      {"kimi", ToolFormat::kimi,
       [](const std::vector<Call>& calls) {
         return "<|tool_calls_section_begin|>" +
                each(calls, "",
                     [](const Call& c) {
                       return "<|tool_call_begin|>functions." + c.name +
                              ":0<|tool_call_argument_begin|>" + c.arguments + "<|tool_call_end|>";
                     }) +
                "<|tool_calls_section_end|>";
       }},
      {"glm", ToolFormat::glm,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<tool_call>" + c.name + "\n" +
                  parameters(c, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n") +
                  "</tool_call>";
         });
       }},
      {"minimax", ToolFormat::minimax,
       [](const std::vector<Call>& calls) {
         return "<minimax:tool_call>\n" +
                each(calls, "\n",
                     [](const Call& c) {
                       return "<invoke name=\"" + c.name + "\">\n" +
                              parameters(c, "<parameter name=\"", "\">", "</parameter>\n") +
                              "</invoke>";
                     }) +
                "\n</minimax:tool_call>";
       }},
      {"cohere", ToolFormat::cohere,
       [](const std::vector<Call>& calls) {
         return "<|START_ACTION|>" + json_list(calls, "tool_name", "parameters") + "<|END_ACTION|>";
       }},
      {"granite 3", ToolFormat::granite,
       [](const std::vector<Call>& calls) {
         return "<|tool_call|>" + json_list(calls, "name", "arguments");
       }},
      {"granite 4", ToolFormat::granite,
       [](const std::vector<Call>& calls) {
         return each(calls, "\n", [](const Call& c) {
           return "<tool_call>\n" + json_call(c, "name", "arguments") + "\n</tool_call>";
         });
       }},
      {"lfm2", ToolFormat::lfm2,
       [](const std::vector<Call>& calls) {
         return "<|tool_call_start|>[" + each(calls, ", ", python_call) + "]<|tool_call_end|>";
       }},
      {"harmony", ToolFormat::harmony,
       [](const std::vector<Call>& calls) {
         return each(calls, "<|start|>assistant", [](const Call& c) {
           return "<|channel|>commentary to=functions." + c.name + " <|constrain|>json<|message|>" +
                  c.arguments + "<|call|>";
         });
       }},
      {"harmony, recipient first", ToolFormat::harmony, [](const std::vector<Call>& calls) {
         return each(calls, "<|start|>assistant", [](const Call& c) {
           return " to=functions." + c.name + "<|channel|>commentary json<|message|>" +
                  c.arguments + "<|call|>";
         });
       }}};
  return kAll;
}

inline const Strings kHarmonyMarkers{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                                     "<|end|>",   "<|return|>",  "<|call|>"};

inline Strings markers_of(const Dialect& d) {
  if (d.format == ToolFormat::harmony) return kHarmonyMarkers;
  const out::FormatSpec* spec = out::find_tool_format(d.format);
  Strings all(spec->markers.begin(), spec->markers.end());
  return all;
}

}  // namespace kvasir::text
