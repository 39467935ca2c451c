// packages: libbz2-dev
// archives: libbz2.a
#include <bzlib.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static char text[90000], packed[100000], again[90000];
    for (unsigned i = 0; i < sizeof text; i++) text[i] = (char)(i * i / 77 + i % 13);
    unsigned packed_size = sizeof packed, size = sizeof again;
    int code = BZ2_bzBuffToBuffCompress(packed, &packed_size, text, sizeof text, 9, 0, 0);
    printf("compress %d: %u bytes\n", code, packed_size);
    code = BZ2_bzBuffToBuffDecompress(again, &size, packed, packed_size, 1, 0);
    printf("small %d: %d\n", code, !memcmp(text, again, size));
    // Verbosity makes the library write to stderr, whose variable it refers to directly.
    size = sizeof again;
    code = BZ2_bzBuffToBuffDecompress(again, &size, packed, packed_size, 0, 3);
    printf("verbose %d, version %s\n", code, BZ2_bzlibVersion());
    return 0;
}
