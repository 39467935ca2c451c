// packages: libmpfr-dev libgmp-dev
// archives: libmpfr.a libgmp.a
#include <stdio.h>
#include <mpfr.h>

int main(void) {
    mpfr_t x, y;
    mpfr_inits2(300, x, y, (mpfr_ptr)0);
    // The constants are kept in thread-local variables of the library.
    mpfr_const_pi(x, MPFR_RNDN);
    mpfr_printf("%.80Rf\n", x);
    mpfr_zeta_ui(y, 3, MPFR_RNDD);
    mpfr_gamma(x, y, MPFR_RNDU);
    mpfr_out_str(stdout, 10, 60, x, MPFR_RNDN);
    mpfr_set_ui(x, 0, MPFR_RNDN);
    mpfr_ui_div(y, 1, x, MPFR_RNDN);
    printf("\n%d %d %s\n", mpfr_inf_p(y), mpfr_divby0_p() != 0, mpfr_get_version());
    mpfr_clears(x, y, (mpfr_ptr)0);
    mpfr_free_cache();
    return 0;
}
