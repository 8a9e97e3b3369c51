# The HTTP half of room server; paths are relative to src/server.
find_package(Boost 1.81 REQUIRED)
find_package(OpenSSL REQUIRED)
set(KVASIR_HTTP_SRCS
  http/auth.cpp http/connection.cpp http/core.cpp http/cors.cpp http/exchange.cpp http/gate.cpp
  http/host_check.cpp http/http_error.cpp http/listener.cpp http/plain_transport.cpp
  http/read_request.cpp http/reply_channel.cpp http/reply_head.cpp http/request_id.cpp
  http/request_parser.cpp http/send_reply.cpp http/server.cpp http/target.cpp http/tls_context.cpp
  http/tls_transport.cpp)
set(KVASIR_HTTP_TESTS
  http/protocol_test.cpp http/request_parser_test.cpp http/security_test.cpp http/server_test.cpp
  http/stream_test.cpp http/testing/test_client.cpp)
set(KVASIR_HTTP_FUZZ http/http_fuzz.cpp)
set(KVASIR_HTTP_LIBS Boost::headers OpenSSL::SSL OpenSSL::Crypto)
# Under sanitizers GCC 12 takes the allocator of coroutine frames for a mismatched one and an empty
# boost::optional for read; clang 14 cannot emit the type checks of indirect calls in coroutines.
set(KVASIR_HTTP_OPTIONS
    -Wno-mismatched-new-delete
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
set_source_files_properties(${KVASIR_HTTP_SRCS} ${KVASIR_HTTP_FUZZ} body_fuzz.cpp server_fuzz.cpp PROPERTIES
  COMPILE_OPTIONS "${KVASIR_HTTP_OPTIONS}")
