# headroom_embed(TARGET FILE... FUNCTION headroom::gpu::embedded::cards_json)
# Compiles data files into TARGET: FUNCTION() returns their text, joined, as a std::string_view.
function(headroom_embed target)
  cmake_parse_arguments(PARSE_ARGV 1 embed "" "FUNCTION" "")
  list(TRANSFORM embed_UNPARSED_ARGUMENTS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/"
    REGEX "^[^/]" OUTPUT_VARIABLE files)
  string(REGEX REPLACE "::[^:]*$" "" namespace "${embed_FUNCTION}")
  string(REGEX REPLACE "^.*::" "" name "${embed_FUNCTION}")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND
      "${CMAKE_COMMAND}" "-DINPUT=${files}" "-DOUTPUT=${generated}"
      "-DNAMESPACE=${namespace}" "-DNAME=${name}" -P "${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake"
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake"
    COMMENT "Embedding ${name}"
    VERBATIM)
  target_sources(${target} PRIVATE "${generated}")
endfunction()
