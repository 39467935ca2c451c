// packages: liblzma-dev
// archives: liblzma.a
#include <lzma.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static uint8_t text[50000], packed[60000], again[50000];
    for (unsigned i = 0; i < sizeof text; i++) text[i] = (uint8_t)(i * 7 / 11 + (i >> 8));
    size_t packed_size = 0, in = 0, out = 0;
    uint64_t limit = 1 << 28;
    // The check is one of those that the library has versions of for several processors.
    lzma_ret code = lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, text, sizeof text, packed, &packed_size, sizeof packed);
    printf("encode %d: %zu bytes, crc64 %016llx\n", code, packed_size, (unsigned long long)lzma_crc64(text, sizeof text, 0));
    code = lzma_stream_buffer_decode(&limit, 0, NULL, packed, &in, packed_size, again, &out, sizeof again);
    printf("decode %d: %d\n", code, out == sizeof text && !memcmp(text, again, out));
    lzma_stream stream = LZMA_STREAM_INIT;
    lzma_mt mt = {.threads = 3, .preset = 3, .check = LZMA_CHECK_SHA256, .block_size = 10000};
    code = lzma_stream_encoder_mt(&stream, &mt);
    stream.next_in = text, stream.avail_in = sizeof text, stream.next_out = packed, stream.avail_out = sizeof packed;
    while (code == LZMA_OK) code = lzma_code(&stream, LZMA_FINISH);
    printf("threads: %d, %llu bytes\n", code, (unsigned long long)stream.total_out);
    lzma_end(&stream);
    return 0;
}
