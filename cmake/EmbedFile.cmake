# headroom_embed(TARGET file.json FUNCTION headroom::gpu::embedded::cards_json)
# Compiles a data file into TARGET: FUNCTION() returns its text as a std::string_view.
function(headroom_embed target file function)
  get_filename_component(stem "${file}" NAME_WE)
  string(REGEX REPLACE "::[^:]*$" "" namespace "${function}")
  string(REGEX REPLACE "^.*::" "" name "${function}")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/embedded/${stem}.cpp")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND
      "${CMAKE_COMMAND}" "-DINPUT=${CMAKE_CURRENT_SOURCE_DIR}/${file}" "-DOUTPUT=${generated}"
      "-DNAMESPACE=${namespace}" "-DNAME=${name}" -P "${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake"
    DEPENDS "${file}" "${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake"
    COMMENT "Embedding ${file}"
    VERBATIM)
  target_sources(${target} PRIVATE "${generated}")
endfunction()
