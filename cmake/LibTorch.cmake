# LibTorch 2.11 from the PyPI wheel, as imported targets:
#   headroom_torch::cpu    c10 and torch_cpu, which run without a GPU
#
# find_package(Torch) is of no use here: on a CUDA wheel it demands a CUDA toolkit.
#
# Where it is looked for: HEADROOM_TORCH (the wheel's `torch` folder), the project's .venv, an active
# virtual environment, what `python3 -c "import torch"` would load.
include_guard(GLOBAL)

function(headroom_find_torch result)
  set(candidates "${HEADROOM_TORCH}" "$ENV{HEADROOM_TORCH}")
  foreach(venv "${PROJECT_SOURCE_DIR}/.venv" "$ENV{VIRTUAL_ENV}")
    file(GLOB found "${venv}/lib/python3*/site-packages/torch")
    list(APPEND candidates ${found})
  endforeach()
  foreach(candidate ${candidates})
    if(EXISTS "${candidate}/lib/libtorch_cpu.so")
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

headroom_find_torch(HEADROOM_TORCH_DIR)
if(NOT HEADROOM_TORCH_DIR)
  message(FATAL_ERROR "LibTorch not found. `make setup` installs it into .venv; or set "
                      "HEADROOM_TORCH to the `torch` folder of a torch 2.11 wheel.")
endif()
file(STRINGS "${HEADROOM_TORCH_DIR}/version.py" version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" HEADROOM_TORCH_VERSION "${version_line}")
if(NOT HEADROOM_TORCH_VERSION MATCHES "^2\\.11\\.")
  message(FATAL_ERROR "LibTorch 2.11 is needed (its C++ interface changes with every version); "
                      "${HEADROOM_TORCH_DIR} is ${HEADROOM_TORCH_VERSION}.")
endif()
message(STATUS "LibTorch ${HEADROOM_TORCH_VERSION} in ${HEADROOM_TORCH_DIR}")

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
file(GLOB HEADROOM_CUDA_INCLUDES "${HEADROOM_TORCH_DIR}/../nvidia/cu13/include")
target_include_directories(headroom_torch::c10_cuda SYSTEM INTERFACE ${HEADROOM_CUDA_INCLUDES})
target_link_libraries(headroom_torch::c10_cuda INTERFACE
  headroom_torch::c10_cuda_library headroom_torch::cpu)
