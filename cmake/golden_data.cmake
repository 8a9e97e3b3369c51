# Unpacks the reference checkpoints of the shared folder into the build folder, once.
# KVASIR_GOLDEN_MODELS: folder with one sub-folder a checkpoint; the few in tests/data when there is no shared folder.
set(KVASIR_GOLDEN_MODELS "${PROJECT_SOURCE_DIR}/tests/data/models")
if(EXISTS "${KVASIR_SHARED}/goldens/models.tar.xz")
  set(KVASIR_GOLDEN_MODELS "${CMAKE_BINARY_DIR}/goldens")
  foreach(archive IN ITEMS models models-kv)
    set(stamp "${KVASIR_GOLDEN_MODELS}/.${archive}.unpacked")
    if(NOT EXISTS ${stamp})
      message(STATUS "Unpacking reference checkpoints: ${archive}.tar.xz")
      file(ARCHIVE_EXTRACT INPUT "${KVASIR_SHARED}/goldens/${archive}.tar.xz" DESTINATION "${KVASIR_GOLDEN_MODELS}")
      file(TOUCH ${stamp})
    endif()
  endforeach()
  # Rows of the reference in f64 where the stored ones are off (docs/numerics.md).
  file(GLOB f64_rows CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/tests/data/goldens"
       "${PROJECT_SOURCE_DIR}/tests/data/goldens/*/golden_f64.safetensors")
  foreach(rows IN LISTS f64_rows)
    configure_file("${PROJECT_SOURCE_DIR}/tests/data/goldens/${rows}" "${KVASIR_GOLDEN_MODELS}/${rows}" COPYONLY)
  endforeach()
endif()
