//! C++ programs, one language or library feature each, in every form.

uruk_tests::programs! { cxx:
    asynchronous, comdat, containers, coroutines, destructor_throws, exceptions, exceptions_through_libc,
    exit_handler_throws, exit_in_the_middle, files, function_statics, functional, nested_exceptions,
    regular_expressions, replaced_new, replaced_new_in_libraries, rtti, statics, streams, terminate_handler, thread_local_objects,
    throwing_statics, uncaught, uncaught_in_thread, unwinder, virtual_inheritance,
}
