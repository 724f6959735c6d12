# Every dependency is a Debian 12 package that scripts/setup installs.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

add_library(hexlm_json INTERFACE)
target_link_libraries(hexlm_json INTERFACE nlohmann_json::nlohmann_json)
target_link_libraries(hexlm_options INTERFACE tl::expected)
