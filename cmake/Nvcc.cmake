# CUDA kernels without a CUDA toolkit: nvcc from the wheels that scripts/torch.sh installs next to
# LibTorch, called by a rule of our own. enable_language(CUDA) would look for a whole toolkit, and a .cu
# file of ours includes neither LibTorch nor headers beyond those of nvcc and the runtime.
#
#   HEADROOM_NVCC   the nvcc to use, 13.0 or later: set by hand, else the wheel's beside LibTorch or
#                   in .venv
#
#   headroom_cuda_kernels(TARGET FILE.cu ...)   compiles the files and links them into the target
#
# Without nvcc, which is said when the build is configured, the function does nothing and
# HEADROOM_NVCC is false: everything is built but the kernels for real cards.

# What LibTorch's wheel is compiled for, and cards of the 4000 series; the newest also as PTX, for
# cards that come later.
set(HEADROOM_CUDA_ARCHITECTURES 75 80 86 89 90 100 120)

file(GLOB candidates "${HEADROOM_TORCH_DIR}/../nvidia/cu13/bin"
  "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/bin")
find_program(HEADROOM_NVCC nvcc PATHS ${candidates} NO_DEFAULT_PATH)
find_program(HEADROOM_NVCC_HOST NAMES g++ g++-12 g++-13)
if(HEADROOM_NVCC AND HEADROOM_NVCC_HOST)
  message(STATUS "nvcc: ${HEADROOM_NVCC}")
else()
  message(STATUS "nvcc is not found: Headroom is built without its kernels for CUDA, which quantised "
    "weights and 8-bit optimizers need on a real card. `make setup` installs it; or set HEADROOM_NVCC.")
endif()

# headroom_torch::cudart   the CUDA runtime. LibTorch's zip brings it along where this finds none.
file(GLOB HEADROOM_CUDART "${HEADROOM_TORCH_DIR}/../nvidia/cu1*/lib/libcudart.so.1*")
add_library(headroom_torch::cudart INTERFACE IMPORTED)
target_link_libraries(headroom_torch::cudart INTERFACE ${HEADROOM_CUDART})

# A g++ that looks into the system's own folders only. A CUDA toolkit in /usr/local/include, or one
# that the environment names, would be found before the wheels' headers.
function(headroom_write_host_compiler file)
  execute_process(COMMAND env -u CPATH -u C_INCLUDE_PATH -u CPLUS_INCLUDE_PATH LC_ALL=C
    "${HEADROOM_NVCC_HOST}" -x c++ -E -v /dev/null
    OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE ".*#include <\\.\\.\\.> search starts here:\n(.*)End of search list.*" "\\1"
    folders "${said}")
  string(REGEX MATCHALL "/[^\n]+" folders "${folders}")
  list(FILTER folders EXCLUDE REGEX "^/usr/local/include")
  list(TRANSFORM folders PREPEND "-isystem ")
  list(JOIN folders " " options)
  file(CONFIGURE OUTPUT "${file}" CONTENT "#!/bin/sh
exec env -u CPATH -u C_INCLUDE_PATH -u CPLUS_INCLUDE_PATH ${HEADROOM_NVCC_HOST} -nostdinc -nostdinc++ ${options} \"$@\"
")
  file(CHMOD "${file}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

function(headroom_cuda_kernels target)
  if(NOT HEADROOM_NVCC OR NOT HEADROOM_NVCC_HOST)
    return()
  endif()
  set(host "${PROJECT_BINARY_DIR}/generated/g++-of-nvcc")
  if(NOT EXISTS "${host}")
    headroom_write_host_compiler("${host}")
  endif()
  set(architectures "")
  foreach(number ${HEADROOM_CUDA_ARCHITECTURES})
    list(APPEND architectures -gencode "arch=compute_${number},code=sm_${number}")
  endforeach()
  list(GET HEADROOM_CUDA_ARCHITECTURES -1 newest)
  list(APPEND architectures -gencode "arch=compute_${newest},code=compute_${newest}")
  set(includes "")
  foreach(folder ${HEADROOM_CUDA_INCLUDES})
    list(APPEND includes -isystem "${folder}")
  endforeach()
  foreach(file ${ARGN})
    cmake_path(ABSOLUTE_PATH file OUTPUT_VARIABLE source)
    cmake_path(GET file STEM name)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o")
    # Without contraction of a * b + c: the bits of the CPU's kernels.
    add_custom_command(OUTPUT "${object}"
      COMMAND "${HEADROOM_NVCC}" -ccbin "${host}" -std=c++20 -O3 -fmad=false -Xcompiler -fPIC,-fvisibility=hidden
        ${architectures} -I "${PROJECT_SOURCE_DIR}" ${includes} -MD -MF "${object}.d" -c "${source}" -o "${object}"
      DEPENDS "${source}" "${host}" DEPFILE "${object}.d" COMMENT "nvcc ${file}" VERBATIM)
    # Not as sources, which only a target of the same folder could have.
    add_custom_target(${target}_${name} DEPENDS "${object}")
    add_dependencies(${target} ${target}_${name})
    target_link_libraries(${target} PRIVATE "${object}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${object}")
  endforeach()
endfunction()
