//! C programs, one language or linker feature each, in every form.

uruk_tests::programs! { c:
    abort_signal, address_of_function, aliases, arguments, atexit_order, broken_pipe, callbacks, calling_convention, code_fragments, common_symbols, compact_relocations,
    constructor_arguments, constructors, constructors_and_sections, dispatch_tables, divide_by_zero, dynamic_symbols, entry_point, environment,
    error_numbers, exit_from_thread, floating_point_state, fork_wait, function_identity, huge_zeroes, ifuncs, immediate_exit,
    inline_assembly, jumps, large_zeroes, library_data, linker_symbols, main_thread_ends, many_functions, merged_strings, module_assembly, names_of_the_process, options,
    quick_exit, replaced_malloc, replaced_malloc_over_libc, section_bounds, segmentation_fault, signal_handlers, standard_input, start_block, static_state, switches, symbol_versions,
    thread_locals, thread_locals_in_handlers, threads, unflushed, variadics, vast_zeroes, vectors, visibility, weak_override, weak_undefined, wide_numbers,
}
