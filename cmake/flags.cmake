# Warnings and numerics flags every room is compiled with.
add_library(kvasir_flags INTERFACE)
target_compile_options(kvasir_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Woverloaded-virtual>"
  # A fused multiply-add is written as one (DESIGN §5).
  "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>" "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-ffp-contract=off;-lineinfo>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(kvasir_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")   # false positive of GCC 12 at -O3
endif()
if(KVASIR_WERROR)
  target_compile_options(kvasir_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
if(KVASIR_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
