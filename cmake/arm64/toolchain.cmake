# 64-bit ARM Linux with Debian's cross compiler and its arm64 packages (scripts/setup arm64). Programs of the build run
# under qemu; QEMU_CPU chooses the processor it plays.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
set(simdjson_DIR ${CMAKE_CURRENT_LIST_DIR})
