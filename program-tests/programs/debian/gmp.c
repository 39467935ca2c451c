// packages: libgmp-dev
// archives: libgmp.a
#include <gmp.h>
#include <stdio.h>

int main(void) {
    mpz_t a, b, c;
    mpz_inits(a, b, c, NULL);
    mpz_fac_ui(a, 300);
    mpz_fib_ui(b, 2000);
    mpz_mul(c, a, b);
    mpz_tdiv_q_ui(c, c, 997);
    gmp_printf("%Zd\n", c);
    mpz_gcd(c, a, b);
    gmp_printf("gcd has %zu bits, root %d\n", mpz_sizeinbase(c, 2), mpz_root(c, a, 17));
    mpz_nextprime(b, c);
    mpz_powm(c, a, b, b);
    gmp_printf("%Zx\n", b);
    mpf_t f;
    mpf_init2(f, 400);
    mpf_sqrt_ui(f, 2);
    gmp_printf("%.100Ff\n", f);
    mpf_clear(f);
    mpz_clears(a, b, c, NULL);
    return 0;
}
