# The output parser of room text; paths are relative to src/text.
set(KVASIR_OUTPUT_DOORS output_parser.h reasoning_budget.h)
set(KVASIR_OUTPUT_SRCS
  output/call_id.cpp output/detect.cpp output/formats/cohere.cpp output/formats/deepseek.cpp
  output/formats/gemma4.cpp output/formats/glm.cpp output/formats/granite.cpp
  output/formats/harmony.cpp output/formats/hermes.cpp output/formats/kimi.cpp
  output/formats/lfm2.cpp output/formats/llama3.cpp output/formats/minicpm.cpp
  output/formats/minimax.cpp output/formats/mistral.cpp output/formats/qwen_xml.cpp
  output/harmony_splitter.cpp output/json_calls.cpp output/json_scan.cpp
  output/literal_scanner.cpp output/markers.cpp output/output_parser.cpp output/program.cpp
  output/python_calls.cpp output/reasoning.cpp output/reasoning_budget.cpp output/stop_gate.cpp output/think_splitter.cpp
  output/tool_format.cpp output/tool_parser.cpp output/tool_set.cpp output/xml_calls.cpp)
set(KVASIR_OUTPUT_TESTS
  output/detect_test.cpp output/real_tokenizers_test.cpp output/reasoning_budget_test.cpp output/reasoning_test.cpp
  output/stop_and_stream_test.cpp
  output/tool_formats_test.cpp output/tool_values_test.cpp)
set(KVASIR_OUTPUT_FUZZ output/output_parser_fuzz.cpp)
