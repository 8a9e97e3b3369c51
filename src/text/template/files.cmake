# The chat template half of room text; paths are relative to src/text.
set(KVASIR_TEMPLATE_DOORS chat_template.h chat_messages.h verify_templates.h)
set(KVASIR_TEMPLATE_SRCS
  template/arena.cpp template/call.cpp template/chat_messages.cpp template/chat_template.cpp
  template/civil_time.cpp template/escape.cpp template/eval.cpp template/exec.cpp
  template/filters_lazy.cpp template/filters_number.cpp template/filters_sequence.cpp
  template/filters_text.cpp template/format_percent.cpp template/format_spec.cpp
  template/format_str.cpp template/globals.cpp template/interp.cpp template/iterators.cpp
  template/lexer.cpp template/loop.cpp template/methods_container.cpp template/methods_text.cpp
  template/operators.cpp template/parser_expressions.cpp template/parser_postfix.cpp
  template/parser_statements.cpp template/print.cpp template/resolve.cpp template/slices.cpp
  template/str.cpp template/symbols.cpp template/tests.cpp template/text_ops.cpp
  template/to_json.cpp template/unescape.cpp template/unicode.cpp template/value.cpp
  template/verify_templates.cpp)
set(KVASIR_TEMPLATE_TESTS
  template/chat_template_test.cpp template/chat_messages_test.cpp template/limits_test.cpp
  template/origin_test.cpp template/reference_test.cpp)
set(KVASIR_TEMPLATE_FUZZ template/chat_template_fuzz.cpp)
