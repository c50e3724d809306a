# The CUDA backend, libodmoe_cuda.so, wherever an nvcc is found that works; elsewhere one line says why it is not built.
#   ODMOE_CUDA                 auto, off, or on: then a CUDA part that cannot be built is an error
#   ODMOE_CUDA_ARCHITECTURES   "86;87": machine code for these, and PTX for the newest of them; or usual
# nvcc is called by custom commands and not through CMake's CUDA language, whose checks of the compiler fail with toolkits that are
# newer than CMake. The runtime is linked statically and opens the driver by itself: the library links and loads without one.

# Functions take the policies of where they are defined.
if(POLICY CMP0116)
  cmake_policy(SET CMP0116 NEW)
endif()

set(ODMOE_CUDA "auto" CACHE STRING "Build the CUDA backend: auto, on, off")
set(ODMOE_CUDA_ARCHITECTURES "usual" CACHE STRING "Compute capabilities to compile for, as in 86;87;90, or: usual")
set(CUDA_OLDEST_TOOLKIT 11.8)
# Of these, those that the toolkit knows. sm_86 serves sm_89 too, the PTX whatever is newer.
set(CUDA_USUAL_ARCHITECTURES 86 87 90)
set(CUDA_SOURCE_FOLDER ${CMAKE_CURRENT_SOURCE_DIR}/src/backends/cuda)
set(CUDA_BUILD_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/cuda)
string(TOLOWER "${ODMOE_CUDA}" CUDA_WANTED)

# Sets CUDA_ABSENCE, why the CUDA part is not built, in the caller.
macro(cuda_cannot_be_built REASON)
  set(CUDA_ABSENCE "${REASON}" PARENT_SCOPE)
  return()
endmacro()

# Sets NVCC, NVCC_VERSION.
function(find_nvcc)
  unset(ODMOE_NVCC CACHE)
  find_program(ODMOE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin PATHS /usr/local/cuda/bin)
  if(NOT ODMOE_NVCC)
    cuda_cannot_be_built("nvcc is neither in the PATH nor in /usr/local/cuda/bin, CUDA_HOME or CUDA_PATH")
  endif()
  execute_process(COMMAND ${ODMOE_NVCC} --version OUTPUT_VARIABLE SAID ERROR_QUIET RESULT_VARIABLE STATUS)
  if(NOT STATUS EQUAL 0 OR NOT SAID MATCHES "release ([0-9]+\\.[0-9]+)")
    cuda_cannot_be_built("${ODMOE_NVCC} --version does not say what it is")
  endif()
  set(NVCC_VERSION ${CMAKE_MATCH_1} PARENT_SCOPE)
  set(NVCC ${ODMOE_NVCC} PARENT_SCOPE)
  if(CMAKE_MATCH_1 VERSION_LESS ${CUDA_OLDEST_TOOLKIT})
    cuda_cannot_be_built("${ODMOE_NVCC} is of CUDA ${CMAKE_MATCH_1}, and ${CUDA_OLDEST_TOOLKIT} or newer is needed")
  endif()
endfunction()

# Sets CUDA_CAPABILITIES, rising: of what is asked for, or usual, what the toolkit knows.
function(choose_capabilities)
  execute_process(COMMAND ${NVCC} --list-gpu-arch OUTPUT_VARIABLE LISTED ERROR_QUIET)
  string(REGEX MATCHALL "compute_[0-9]+" KNOWN "${LISTED}")
  string(REGEX MATCHALL "[0-9]+" ASKED "${ODMOE_CUDA_ARCHITECTURES}")
  if(ASKED)
    set(CHOSEN ${ASKED})
  else()
    set(CHOSEN ${CUDA_USUAL_ARCHITECTURES})
  endif()
  foreach(CAPABILITY ${CHOSEN})
    if(compute_${CAPABILITY} IN_LIST KNOWN)
      list(APPEND CAPABILITIES ${CAPABILITY})
    elseif(ASKED)
      message(FATAL_ERROR "CUDA: nvcc ${NVCC_VERSION} (${NVCC}) does not know compute capability ${CAPABILITY}, which "
                          "ODMOE_CUDA_ARCHITECTURES asks for")
    endif()
  endforeach()
  if(NOT CAPABILITIES)
    cuda_cannot_be_built("nvcc ${NVCC_VERSION} (${NVCC}) knows none of the compute capabilities ${CHOSEN}")
  endif()
  list(SORT CAPABILITIES COMPARE NATURAL)
  list(REMOVE_DUPLICATES CAPABILITIES)
  set(CUDA_CAPABILITIES ${CAPABILITIES} PARENT_SCOPE)
endfunction()

# Sets NVCC_FLAGS, and CUDA_CODE, the list of what there is code for, as device_list.cc takes it.
function(set_nvcc_flags)
  foreach(CAPABILITY ${CUDA_CAPABILITIES})
    list(APPEND TARGETS -gencode arch=compute_${CAPABILITY},code=sm_${CAPABILITY})
    string(APPEND CODE "sm_${CAPABILITY} ")
  endforeach()
  list(GET CUDA_CAPABILITIES -1 NEWEST)
  list(APPEND TARGETS -gencode arch=compute_${NEWEST},code=compute_${NEWEST})
  set(CUDA_CODE "${CODE}compute_${NEWEST}" PARENT_SCOPE)
  # The one arithmetic here too: no fusing, no flushing to zero, division and root rounded as IEEE 754 says.
  set(NVCC_FLAGS -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true ${TARGETS} -Werror=all-warnings
                 -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC,-Wall,-Wextra,-fvisibility=hidden,-ffp-contract=off
                 -I${CMAKE_CURRENT_SOURCE_DIR}/include PARENT_SCOPE)
endfunction()

# Sets CUDA_INCLUDE, CUDA_RUNTIME_LIBRARY: those that nvcc itself uses, wherever it really is.
function(find_cuda_runtime)
  file(WRITE ${CUDA_BUILD_FOLDER}/probe.cu
       "#include <cuda_runtime.h>\n#include <cstdint>\n#include <memory>\n#include <string>\n"
       "__global__ void probe(float* x) { x[threadIdx.x] = __fmaf_rn(x[threadIdx.x], 2.0f, 1.0f); }\n"
       "const void* kernel_of_probe() { return reinterpret_cast<const void*>(&probe); }\n")
  execute_process(COMMAND ${NVCC} --dryrun ${CUDA_BUILD_FOLDER}/probe.cu -o ${CUDA_BUILD_FOLDER}/probe OUTPUT_VARIABLE SAID
                  ERROR_VARIABLE SAID)
  foreach(KIND I L)
    string(REGEX MATCHALL "\"-${KIND}[^\"]+\"" OPTIONS "${SAID}")
    set(FOLDERS_${KIND} "")
    foreach(OPTION ${OPTIONS})
      string(REGEX REPLACE "^\"-${KIND}(.*)\"$" "\\1" FOLDER "${OPTION}")
      list(APPEND FOLDERS_${KIND} ${FOLDER})
    endforeach()
  endforeach()
  get_filename_component(NVCC_FOLDER ${NVCC} REALPATH)
  get_filename_component(NVCC_FOLDER ${NVCC_FOLDER} DIRECTORY)
  unset(ODMOE_CUDA_INCLUDE CACHE)
  unset(ODMOE_CUDART CACHE)
  find_path(ODMOE_CUDA_INCLUDE cuda_runtime.h HINTS ${FOLDERS_I} ${NVCC_FOLDER}/../include /usr/local/cuda/include)
  find_library(ODMOE_CUDART cudart_static HINTS ${FOLDERS_L} ${NVCC_FOLDER}/../lib64 ${NVCC_FOLDER}/../lib /usr/local/cuda/lib64)
  if(NOT ODMOE_CUDA_INCLUDE OR NOT ODMOE_CUDART)
    cuda_cannot_be_built("${NVCC} is there, but cuda_runtime.h or libcudart_static.a of its toolkit is not")
  endif()
  set(CUDA_INCLUDE ${ODMOE_CUDA_INCLUDE} PARENT_SCOPE)
  set(CUDA_RUNTIME_LIBRARY ${ODMOE_CUDART} PARENT_SCOPE)
endfunction()

# nvcc refuses host compilers that are too new for it; better before the build than in it.
function(try_nvcc)
  execute_process(COMMAND ${NVCC} ${NVCC_FLAGS} -c ${CUDA_BUILD_FOLDER}/probe.cu -o ${CUDA_BUILD_FOLDER}/probe.o
                  OUTPUT_VARIABLE SAID ERROR_VARIABLE SAID RESULT_VARIABLE STATUS)
  if(STATUS EQUAL 0)
    return()
  endif()
  string(REGEX MATCH "[^\n]*[Ee]rror[^\n]*" FIRST "${SAID}")
  cuda_cannot_be_built("nvcc ${NVCC_VERSION} (${NVCC}) does not work with ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}, "
                       "another compiler can be given by CC and CXX (CC=gcc-11 CXX=g++-11 npm run build): ${FIRST}")
endfunction()

function(find_cuda_toolkit)
  set(CUDA_ABSENCE "" PARENT_SCOPE)
  if(APPLE)
    cuda_cannot_be_built("there is no CUDA for macOS")
  endif()
  if(CUDA_WANTED MATCHES "^(off|0|no|false)$")
    cuda_cannot_be_built("ODMOE_CUDA is off")
  endif()
  foreach(STEP find_nvcc choose_capabilities set_nvcc_flags find_cuda_runtime try_nvcc)
    # cmake_language(CALL) is CMake 3.18's.
    cmake_language(CALL ${STEP})
    if(CUDA_ABSENCE)
      cuda_cannot_be_built("${CUDA_ABSENCE}")
    endif()
  endforeach()
  foreach(RESULT NVCC NVCC_VERSION NVCC_FLAGS CUDA_CODE CUDA_INCLUDE CUDA_RUNTIME_LIBRARY)
    set(${RESULT} "${${RESULT}}" PARENT_SCOPE)
  endforeach()
endfunction()

# Adds the command that compiles one .cu; its object file is appended to CUDA_OBJECTS.
function(compile_kernels SOURCE)
  get_filename_component(NAME ${SOURCE} NAME)
  set(OBJECT ${CUDA_BUILD_FOLDER}/${NAME}.o)
  # Make takes dependency files from CMake 3.20 on; before, every header counts for every kernel.
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.20 OR CMAKE_GENERATOR MATCHES Ninja)
    set(HEADERS DEPFILE ${OBJECT}.d)
  else()
    file(GLOB HEADERS CONFIGURE_DEPENDS ${CUDA_SOURCE_FOLDER}/*.h ${CMAKE_CURRENT_SOURCE_DIR}/include/odmoe/*.h)
  endif()
  add_custom_command(
    OUTPUT ${OBJECT}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${NVCC} ${NVCC_FLAGS} -MD -MF ${OBJECT}.d -MT ${OBJECT} -c ${SOURCE} -o ${OBJECT}
    DEPENDS ${SOURCE} ${HEADERS}
    COMMENT "Compiling ${NAME} with nvcc"
    VERBATIM)
  set_source_files_properties(${OBJECT} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(CUDA_OBJECTS ${CUDA_OBJECTS} ${OBJECT} PARENT_SCOPE)
endfunction()

function(add_cuda_backend)
  file(GLOB HOST_SOURCES CONFIGURE_DEPENDS ${CUDA_SOURCE_FOLDER}/*.cc)
  file(GLOB KERNEL_SOURCES CONFIGURE_DEPENDS ${CUDA_SOURCE_FOLDER}/*.cu)
  foreach(SOURCE ${KERNEL_SOURCES})
    compile_kernels(${SOURCE})
  endforeach()
  add_library(odmoe_cuda SHARED ${HOST_SOURCES} ${CUDA_OBJECTS})
  target_include_directories(odmoe_cuda SYSTEM PRIVATE ${CUDA_INCLUDE})
  target_precompile_headers(odmoe_cuda PRIVATE ${ODMOE_STANDARD_HEADERS})
  target_compile_definitions(odmoe_cuda PRIVATE ODMOE_VERSION="${ODMOE_VERSION}" ODMOE_CUDA_ARCHITECTURES="${CUDA_CODE}")
  target_link_libraries(odmoe_cuda PRIVATE odmoe_backend ${CUDA_RUNTIME_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} rt)
  # Never unloaded: the driver keeps threads of its own.
  target_link_options(odmoe_cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL -Wl,-z,nodelete)
endfunction()

find_cuda_toolkit()
if(NOT CUDA_ABSENCE)
  message(STATUS "CUDA: building the backend for ${CUDA_CODE} with nvcc ${NVCC_VERSION}")
  add_cuda_backend()
else()
  # One of an earlier build would be opened in spite of that.
  file(REMOVE ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libodmoe_cuda.so ${CMAKE_CURRENT_BINARY_DIR}/libodmoe_cuda.so)
endif()
if(CUDA_ABSENCE AND CUDA_WANTED MATCHES "^(on|1|yes|true)$")
  message(FATAL_ERROR "CUDA: the backend cannot be built: ${CUDA_ABSENCE}")
elseif(CUDA_ABSENCE)
  message(STATUS "CUDA: the backend is not built: ${CUDA_ABSENCE}")
endif()
# For the tests: whether the library may be missing.
set(ODMOE_CUDA_ABSENCE "${CUDA_ABSENCE}" CACHE INTERNAL "Why the CUDA backend is not built")
