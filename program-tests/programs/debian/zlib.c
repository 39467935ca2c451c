// packages: zlib1g-dev
// archives: libz.a
#include <stdio.h>
#include <string.h>
#include <zlib.h>

int main(void) {
    unsigned char text[20000], packed[21000], again[20000];
    for (unsigned i = 0; i < sizeof text; i++) text[i] = (unsigned char)("the quick brown fox "[i % 20] + i / 5000);
    uLongf packed_size = sizeof packed, size = sizeof again;
    int code = compress2(packed, &packed_size, text, sizeof text, 9);
    printf("compress %d: %lu bytes, crc %08lx, adler %08lx\n", code, packed_size, crc32(0, packed, packed_size),
           adler32(1, text, sizeof text));
    code = uncompress(again, &size, packed, packed_size);
    printf("uncompress %d: %d\n", code, size == sizeof text && !memcmp(text, again, size));
    packed[10] ^= 0x55;
    size = sizeof again;
    printf("damaged: %s\n", zError(uncompress(again, &size, packed, packed_size)));
    char name[] = "zlib-test-XXXXXX.gz";
    strcpy(name, "written.gz");
    gzFile file = gzopen(name, "wb");
    gzprintf(file, "%d lines and %s\n", 7, "a word");
    gzclose(file);
    file = gzopen(name, "rb");
    char line[64] = "";
    gzgets(file, line, sizeof line);
    gzclose(file);
    printf("gz: %s", line);
    return 0;
}
