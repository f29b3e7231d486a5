# What every target of ours is compiled with. Warnings are errors in our own code only: an installed
# header must not break somebody else's build.
include_guard(GLOBAL)

option(HEADROOM_BUILD_ENGINE "Build the part that needs LibTorch" ON)
option(HEADROOM_BUILD_MODELS "Build the engine's rooms from nn on, and headroom-engine" ON)
option(HEADROOM_BUILD_TESTS "Build the tests" ON)
option(HEADROOM_BUILD_BENCH "Build the benchmarks" ON)
option(HEADROOM_UNITY "Compile sources in batches: a clean build takes a third of the time" ON)
option(HEADROOM_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(HEADROOM_WARNINGS_AS_ERRORS "Fail where our own code gets a warning" ON)
set(HEADROOM_SANITIZE "" CACHE STRING "address, thread, or empty")

find_program(HEADROOM_CCACHE ccache)
if(HEADROOM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HEADROOM_CCACHE}")
endif()

# Sources compile in batches that share their headers' cost. OFF (as in the preset `dev`) compiles each
# alone, which is quicker for an edit.
set(CMAKE_UNITY_BUILD ${HEADROOM_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)

# Defines nothing of the interface: linked PRIVATE by every target of ours.
add_library(headroom_options INTERFACE)
target_compile_features(headroom_options INTERFACE cxx_std_20)
target_compile_options(headroom_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                  -Wnon-virtual-dtor -Wold-style-cast
                                                  $<$<BOOL:${HEADROOM_WARNINGS_AS_ERRORS}>:-Werror>
# {.need = 10_GiB} leaves the other options at their defaults, which is what it is for.
                                                  -Wno-missing-field-initializers
# In a batch every source is an included file, which g++ expects to be a header.
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
# clang counts it to -Wconversion, g++ does not; what both say is enough.
                                                  -Wno-sign-conversion)
target_include_directories(headroom_options INTERFACE "${PROJECT_SOURCE_DIR}")
# In debug builds, too: without it some of LibTorch's classes (at::RecordFunction) have a member more
# than in LibTorch itself.
target_compile_definitions(headroom_options INTERFACE $<$<CONFIG:Debug>:NDEBUG>)
if(HEADROOM_SANITIZE)
  add_compile_options(-fsanitize=${HEADROOM_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HEADROOM_SANITIZE})
  # Functions of libraries that are loaded at run time have the library's own types, which we state anew.
  add_compile_options($<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  # g++ 12 sees false positives of these once sanitizers have rewritten the code.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(HEADROOM_FUZZ)
  # Where the fuzzer looks for new paths; and nothing that a sanitizer says may go by.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()
