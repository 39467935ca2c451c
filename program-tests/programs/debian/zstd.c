// packages: libzstd-dev
// archives: libzstd.a
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int main(void) {
    size_t size = 400000;
    char *text = malloc(size), *packed = malloc(ZSTD_compressBound(size)), *again = malloc(size);
    for (size_t i = 0; i < size; i++) text[i] = (char)(i % 251 * (i / 999));
    for (int level = 1; level < 20; level += 9) {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        ZSTD_CCtx_setParameter(context, ZSTD_c_nbWorkers, level > 5 ? 2 : 0);
        size_t count = ZSTD_compress2(context, packed, ZSTD_compressBound(size), text, size);
        size_t back = ZSTD_decompress(again, size, packed, count);
        printf("level %d: %s, %d\n", level, ZSTD_getErrorName(count), back == size && !memcmp(text, again, size));
        packed[count / 2] ^= 1;
        printf("damaged: %d\n", ZSTD_isError(ZSTD_decompress(again, size, packed, count)));
        ZSTD_freeCCtx(context);
    }
    free(text), free(packed), free(again);
    return 0;
}
