# Compile options of our own code: every warning is an error.
add_library(hexlm_options INTERFACE)
target_compile_options(hexlm_options INTERFACE -Wall -Wextra -Werror)
target_include_directories(hexlm_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(HEXLM_SANITIZE)
  target_compile_options(hexlm_options INTERFACE -fsanitize=${HEXLM_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  # g++ 12 sees uninitialised reads in instrumented std::variant code that are none.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(hexlm_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(hexlm_options INTERFACE -fsanitize=${HEXLM_SANITIZE})
endif()

# The presets compile several sources of a layer together (unity build), which takes a third of the time. These
# keep names in their anonymous namespaces that another source of their layer has too, and stay alone.
file(GLOB hexlm_alone CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tokenizer/jinja/filters_*.cpp
     ${CMAKE_SOURCE_DIR}/src/tokenizer/jinja/methods_*.cpp)
set_source_files_properties(
  ${hexlm_alone}
  ${CMAKE_SOURCE_DIR}/src/formats/package.cpp
  ${CMAKE_SOURCE_DIR}/src/formats/safetensors_header.cpp
  ${CMAKE_SOURCE_DIR}/src/quantization/tensor_stream.cpp
  ${CMAKE_SOURCE_DIR}/src/tokenizer/regex_splitter.cpp
  ${CMAKE_SOURCE_DIR}/src/tokenizer/tokenizer.cpp
  ${CMAKE_SOURCE_DIR}/src/tokenizer/jinja/registry.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# hexlm_add_layer(NAME DEPENDS TARGET...): a static library hexlm_NAME of every source below src/NAME.
# A layer without sources yet is an interface library, so that layers can be filled in any order.
function(hexlm_add_layer name)
  cmake_parse_arguments(LAYER "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(sources)
    add_library(hexlm_${name} STATIC ${sources})
    target_link_libraries(hexlm_${name} PUBLIC hexlm_options ${LAYER_DEPENDS})
  else()
    add_library(hexlm_${name} INTERFACE)
    target_link_libraries(hexlm_${name} INTERFACE hexlm_options ${LAYER_DEPENDS})
  endif()
endfunction()

# The kernel layer picks one folder of vector kernels for the target processor; each file of it is
# compiled for the instruction set that its name begins with.
function(hexlm_add_kernel_layer)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cpp
       ${CMAKE_SOURCE_DIR}/src/kernels/reference/*.cpp)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    file(GLOB vector CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/x86/*.cpp)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    file(GLOB vector CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/arm/*.cpp)
  else()
    file(GLOB vector CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/portable/*.cpp)
  endif()
  foreach(source IN LISTS vector)
    get_filename_component(file ${source} NAME)
    if(file MATCHES "^avx2_")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(file MATCHES "^avx512_")
      set_source_files_properties(
        ${source} PROPERTIES COMPILE_OPTIONS
                             "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx2;-mfma;-mf16c")
    elseif(file MATCHES "^neon_")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8-a")
    elseif(file MATCHES "^dotprod_")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
    elseif(file MATCHES "^i8mm_")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
    endif()
  endforeach()
  if(sources OR vector)
    add_library(hexlm_kernels STATIC ${sources} ${vector})
    target_link_libraries(hexlm_kernels PUBLIC hexlm_options hexlm_formats)
  else()
    add_library(hexlm_kernels INTERFACE)
    target_link_libraries(hexlm_kernels INTERFACE hexlm_options hexlm_formats)
  endif()
endfunction()
