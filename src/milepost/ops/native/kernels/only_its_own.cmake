# Fails if a variant's object file has weak symbols: inline functions and templates that were not
# inlined. The linker keeps one copy of each for the whole extension, so the baseline could end up
# calling one that was compiled for AVX-512. Fails too if it has code that runs when the extension is
# loaded, which is before anyone knows what the CPU runs. Run with -DNM, -DOBJECT and -DCHECKED.

execute_process(COMMAND "${NM}" -C --defined-only "${OBJECT}"
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" weak "${symbols}")
list(FILTER weak EXCLUDE REGEX "DW\\.ref\\.") # the compiler's own, and data
if(weak)
  list(JOIN weak "\n  " weak)
  message(FATAL_ERROR "${OBJECT} has code that the linker shares between instruction sets:\n  ${weak}\n"
                      "Put it in an anonymous namespace, or mark it always_inline.")
endif()
if(symbols MATCHES "_GLOBAL__sub_I_")
  message(FATAL_ERROR "${OBJECT} has a variable that is initialised when the extension is loaded.\n"
                      "Make it constexpr.")
endif()
file(TOUCH "${CHECKED}")
