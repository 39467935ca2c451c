// packages: liblapack-dev libblas-dev libgfortran-12-dev
// archives: liblapack.a libblas.a
// libraries: libgfortran.so.5 libm.so.6
#include <stdio.h>

void dgesv_(int *, int *, double *, int *, int *, double *, int *, int *);
void dsyev_(char *, char *, int *, double *, int *, double *, double *, int *, int *, long, long);

int main(void) {
    int n = 3, columns = 1, pivots[3], info, room = 64;
    double a[] = {4, 1, 2, 1, 5, 3, 2, 3, 6}, b[] = {1, 2, 3}, s[] = {2, 1, 0, 1, 2, 1, 0, 1, 2}, w[3], work[64];
    dgesv_(&n, &columns, a, &n, pivots, b, &n, &info);
    printf("%d: %.6f %.6f %.6f\n", info, b[0], b[1], b[2]);
    dsyev_("V", "U", &n, s, &n, w, work, &room, &info, 1, 1);
    printf("%d: %.6f %.6f %.6f\n", info, w[0], w[1], w[2]);
    // A wrong argument makes the library print, by Fortran's own input and output, and stop.
    int wrong = -1;
    dgesv_(&wrong, &columns, a, &n, pivots, b, &n, &info);
    puts("not reached");
    return 0;
}
