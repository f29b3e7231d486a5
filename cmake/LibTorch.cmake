# LibTorch, from the PyPI wheel or the official zip, as imported targets:
#   headroom_torch::cpu    c10 and torch_cpu, which run without a GPU
# and its minor version, HEADROOM_TORCH_MINOR: 11 for 2.11.0. Where there is none,
# HEADROOM_TORCH_PROBLEM: a sentence that says what to set.
#
# Its C++ interface changes with every minor version. Headroom's source builds with each from
# 2.HEADROOM_TORCH_OLDEST to 2.HEADROOM_TORCH_NEWEST; an installed Headroom sets both to the one that
# it was built with.
#
# find_package(Torch) is of no use here: on a CUDA wheel it demands a CUDA toolkit.
#
# Where it is looked for, and the first that is there counts:
#   HEADROOM_TORCH, a CMake or environment variable: the folder with lib/libtorch_cpu.so
#   a Torch that the project has found: TORCH_INSTALL_PREFIX, Torch_DIR
#   CMAKE_PREFIX_PATH: that folder, one that holds it as `torch` or `libtorch`, the wheel's
#     share/cmake, or a Python environment
#   the project's .venv, an active virtual environment, what `python3 -c "import torch"` would load

function(headroom_find_torch result)
  set(candidates "${HEADROOM_TORCH}" "$ENV{HEADROOM_TORCH}" "${TORCH_INSTALL_PREFIX}")
  if(Torch_DIR)
    list(APPEND candidates "${Torch_DIR}/../../..")
  endif()
  string(REPLACE ":" ";" from_environment "$ENV{CMAKE_PREFIX_PATH}")
  set(environments "${PROJECT_SOURCE_DIR}/.venv" "$ENV{VIRTUAL_ENV}")
  foreach(prefix ${CMAKE_PREFIX_PATH} ${from_environment})
    list(APPEND candidates "${prefix}" "${prefix}/torch" "${prefix}/libtorch" "${prefix}/../..")
    list(PREPEND environments "${prefix}")
  endforeach()
  foreach(environment ${environments})
    file(GLOB found "${environment}/lib/python3*/site-packages/torch")
    list(APPEND candidates ${found})
  endforeach()
  foreach(candidate ${candidates})
    if(EXISTS "${candidate}/lib/libtorch_cpu.so")
      get_filename_component(candidate "${candidate}" ABSOLUTE)
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(EXISTS "${from_python}/lib/libtorch_cpu.so")
    set(${result} "${from_python}" PARENT_SCOPE)
  endif()
endfunction()

# A wheel says its version in version.py, the zip in build-version.
function(headroom_torch_version folder result)
  foreach(file version.py build-version)
    if(EXISTS "${folder}/${file}")
      file(STRINGS "${folder}/${file}" lines REGEX "[0-9]+\\.[0-9]+\\.[0-9]+" LIMIT_COUNT 1)
      string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${lines}")
      set(${result} "${version}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "unknown" PARENT_SCOPE)
endfunction()

if(NOT HEADROOM_TORCH_OLDEST)
  set(HEADROOM_TORCH_OLDEST 11)
  set(HEADROOM_TORCH_NEWEST 15)
endif()
if(HEADROOM_TORCH_OLDEST EQUAL HEADROOM_TORCH_NEWEST)
  set(HEADROOM_TORCH_WANTED "LibTorch 2.${HEADROOM_TORCH_OLDEST}")
else()
  set(HEADROOM_TORCH_WANTED "LibTorch 2.${HEADROOM_TORCH_OLDEST} to 2.${HEADROOM_TORCH_NEWEST}")
endif()

unset(HEADROOM_TORCH_PROBLEM)
if(TARGET headroom_torch::cpu)
  return()
endif()
unset(HEADROOM_TORCH_DIR)
headroom_find_torch(HEADROOM_TORCH_DIR)
if(NOT HEADROOM_TORCH_DIR)
  set(HEADROOM_TORCH_PROBLEM "LibTorch is not found; set HEADROOM_TORCH to the folder of \
${HEADROOM_TORCH_WANTED} that holds lib/libtorch_cpu.so (site-packages/torch of the wheel, or the unpacked libtorch zip), \
or add it to CMAKE_PREFIX_PATH")
  return()
endif()
headroom_torch_version("${HEADROOM_TORCH_DIR}" HEADROOM_TORCH_VERSION)
# Another version in the same folder configures anew.
foreach(file version.py build-version)
  if(EXISTS "${HEADROOM_TORCH_DIR}/${file}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HEADROOM_TORCH_DIR}/${file}")
  endif()
endforeach()
string(REGEX REPLACE "^2\\.([0-9]+)\\..*" "\\1" HEADROOM_TORCH_MINOR "${HEADROOM_TORCH_VERSION}")
if(NOT HEADROOM_TORCH_MINOR MATCHES "^[0-9]+$"
   OR HEADROOM_TORCH_MINOR LESS HEADROOM_TORCH_OLDEST
   OR HEADROOM_TORCH_MINOR GREATER HEADROOM_TORCH_NEWEST)
  set(HEADROOM_TORCH_PROBLEM "${HEADROOM_TORCH_WANTED} is needed (its C++ interface changes with every \
version), and ${HEADROOM_TORCH_DIR} is of version ${HEADROOM_TORCH_VERSION}; set HEADROOM_TORCH to \
the folder of one that fits")
  return()
endif()
if(NOT headroom_FIND_QUIETLY)
  message(STATUS "LibTorch ${HEADROOM_TORCH_VERSION} in ${HEADROOM_TORCH_DIR}")
endif()

foreach(library c10 torch_cpu)
  add_library(headroom_torch::${library} SHARED IMPORTED)
  set_target_properties(headroom_torch::${library} PROPERTIES
    IMPORTED_LOCATION "${HEADROOM_TORCH_DIR}/lib/lib${library}.so")
endforeach()

# torch_cpu of the CUDA wheel needs libcudart and libcupti, which lie in their own wheels beside it;
# at run time it finds them by its own rpath, the linker has to be told.
file(GLOB HEADROOM_TORCH_CUDA_LIBS "${HEADROOM_TORCH_DIR}/../nvidia/*/lib")
add_library(headroom_torch::cpu INTERFACE IMPORTED)
target_link_libraries(headroom_torch::cpu INTERFACE headroom_torch::torch_cpu headroom_torch::c10)
target_include_directories(headroom_torch::cpu SYSTEM INTERFACE
  "${HEADROOM_TORCH_DIR}/include" "${HEADROOM_TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(headroom_torch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
foreach(folder ${HEADROOM_TORCH_CUDA_LIBS})
  target_link_options(headroom_torch::cpu INTERFACE "-Wl,-rpath-link,${folder}")
endforeach()

# headroom_torch::c10_cuda   the CUDA caching allocator and its settings; it loads without a GPU. Its
# headers need those of the CUDA runtime, which the runtime's wheel carries: no toolkit.
add_library(headroom_torch::c10_cuda_library SHARED IMPORTED)
set_target_properties(headroom_torch::c10_cuda_library PROPERTIES
  IMPORTED_LOCATION "${HEADROOM_TORCH_DIR}/lib/libc10_cuda.so")
add_library(headroom_torch::c10_cuda INTERFACE IMPORTED)
file(GLOB HEADROOM_CUDA_INCLUDES "${HEADROOM_TORCH_DIR}/../nvidia/cu1*/include")
target_include_directories(headroom_torch::c10_cuda SYSTEM INTERFACE ${HEADROOM_CUDA_INCLUDES})
target_link_libraries(headroom_torch::c10_cuda INTERFACE
  headroom_torch::c10_cuda_library headroom_torch::cpu)
