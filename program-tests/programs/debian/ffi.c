// packages: libffi-dev
// archives: libffi.a
#include <ffi.h>
#include <stdio.h>

struct pair { double real; int whole; };
static double mix(char a, float b, struct pair c, long d) { return a + b + c.real + c.whole + (double)d; }
static void closure(ffi_cif *cif, void *result, void **arguments, void *user) {
    (void)cif;
    *(ffi_sarg *)result = *(int *)arguments[0] * *(int *)user;
}

int main(void) {
    ffi_type *members[] = {&ffi_type_double, &ffi_type_sint, NULL};
    ffi_type pair = {0, 0, FFI_TYPE_STRUCT, members};
    ffi_type *types[] = {&ffi_type_schar, &ffi_type_float, &pair, &ffi_type_slong};
    ffi_cif cif;
    printf("prepare %d\n", ffi_prep_cif(&cif, FFI_DEFAULT_ABI, 4, &ffi_type_double, types));
    char a = 3;
    float b = 0.25f;
    struct pair c = {1.5, 40};
    long d = -7;
    void *values[] = {&a, &b, &c, &d};
    double result = 0;
    ffi_call(&cif, FFI_FN(mix), &result, values);
    printf("called: %.2f\n", result);
    // A closure is code that the library makes while the program runs.
    int (*code)(int) = NULL, factor = 6;
    ffi_closure *made = ffi_closure_alloc(sizeof *made, (void **)&code);
    ffi_type *one[] = {&ffi_type_sint};
    ffi_cif of_closure;
    ffi_prep_cif(&of_closure, FFI_DEFAULT_ABI, 1, &ffi_type_sint, one);
    printf("closure %d", ffi_prep_closure_loc(made, &of_closure, closure, &factor, (void *)code));
    printf(": %d\n", code(7));
    ffi_closure_free(made);
    return 0;
}
