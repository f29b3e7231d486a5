# `cmake --install`: binaries, libraries, headers, completion, and packages for find_package(headroom) and
# pkg-config.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/headroom")
install(TARGETS headroom_core EXPORT headroom-core)
# Without its debug information, which a program of 3 MB would carry along: 16 MB.
if(CMAKE_STRIP AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:headroom_core>\"
    COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(TARGETS headroom_cli)
install(EXPORT headroom-core NAMESPACE headroom:: DESTINATION "${package_dir}")
if(HEADROOM_BUILD_ENGINE)
  install(TARGETS headroom EXPORT headroom-engine)
  if(TARGET headroom_engine)
    install(TARGETS headroom_engine)
  endif()
  install(TARGETS headroom_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  if(TARGET headroom_images)
    install(TARGETS headroom_images LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
  install(EXPORT headroom-engine NAMESPACE headroom:: DESTINATION "${package_dir}")
endif()
# The public headers: none of detail/, and none of the folders that rooms.txt calls private to a room.
set(inner_folders "")
file(STRINGS "${PROJECT_SOURCE_DIR}/headroom/rooms.txt" lines REGEX "^inside ")
foreach(line IN LISTS lines)
  if(line MATCHES "^inside ([a-z_/]+): *(.*)")
    set(room "${CMAKE_MATCH_1}")
    string(REGEX REPLACE " +" "|" folders "${CMAKE_MATCH_2}")
    list(APPEND inner_folders REGEX "/headroom/${room}/(${folders})$" EXCLUDE)
  endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/headroom" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "detail" EXCLUDE PATTERN "cli" EXCLUDE
  PATTERN "python" EXCLUDE ${inner_folders})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/headroomConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/headroomConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/headroomConfig.cmake"
  "${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake" "${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake"
  DESTINATION "${package_dir}")
# For builds without CMake. A prefix may be moved: the files name it from where they lie.
file(RELATIVE_PATH HEADROOM_PREFIX_OF_PKGCONFIG "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
set(pkgconfig_files headroom-core)
if(HEADROOM_BUILD_ENGINE)
  list(APPEND pkgconfig_files headroom)
endif()
foreach(name ${pkgconfig_files})
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in" "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/headroom.bash"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME headroom)
install(FILES "${PROJECT_BINARY_DIR}/headroom.zsh"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" RENAME _headroom)
install(FILES "${PROJECT_BINARY_DIR}/headroom.fish"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
