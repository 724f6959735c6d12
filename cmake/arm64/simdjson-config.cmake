# Debian's development package of simdjson can't be installed for two architectures at once: its headers come from the
# building machine's, the library from the arm64 package.
find_library(simdjson_library NAMES libsimdjson.so.14 REQUIRED PATHS /usr/lib/aarch64-linux-gnu NO_DEFAULT_PATH)
add_library(simdjson::simdjson SHARED IMPORTED)
set_target_properties(simdjson::simdjson PROPERTIES IMPORTED_LOCATION ${simdjson_library})
