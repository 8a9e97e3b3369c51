# The endpoints of room server; paths are relative to src/server.
set(KVASIR_ENDPOINT_SRCS
  endpoints/admin.cpp endpoints/api_error.cpp endpoints/chat_completions.cpp
  endpoints/completions.cpp endpoints/downloads.cpp endpoints/embedding_job.cpp endpoints/embeddings.cpp endpoints/endpoint.cpp endpoints/generation_job.cpp
  endpoints/introspection.cpp endpoints/key_rows.cpp endpoints/metrics.cpp endpoints/models.cpp endpoints/openai_json.cpp
  endpoints/openai_request.cpp endpoints/response_store.cpp endpoints/signature.cpp
  endpoints/text.cpp endpoints/token_ledger.cpp endpoints/transcript.cpp endpoints/web_chat.cpp)
set(KVASIR_ENDPOINT_TESTS endpoints/chat_completions_test.cpp endpoints/embeddings_test.cpp endpoints/generation_job_test.cpp endpoints/introspection_test.cpp
  endpoints/key_rows_test.cpp endpoints/token_ledger_test.cpp)
# Anthropic, Responses, Ollama
list(APPEND KVASIR_ENDPOINT_SRCS
  endpoints/anthropic_format.cpp endpoints/anthropic_messages.cpp endpoints/anthropic_request.cpp
  endpoints/messages.cpp endpoints/ollama.cpp endpoints/ollama_format.cpp
  endpoints/ollama_messages.cpp endpoints/ollama_models.cpp endpoints/ollama_request.cpp
  endpoints/parted_format.cpp endpoints/responses.cpp endpoints/responses_format.cpp
  endpoints/responses_input.cpp endpoints/responses_request.cpp)
list(APPEND KVASIR_ENDPOINT_TESTS
  endpoints/anthropic_format_test.cpp endpoints/messages_test.cpp endpoints/ollama_test.cpp
  endpoints/responses_format_test.cpp endpoints/responses_test.cpp
  endpoints/testing/tiny_engine.cpp)
