//# stdout: level 1: 33554432 bytes, 1 frame, same after the round trip
//# stdout: level 3, streamed: 33554432 bytes, 1 frame, same after the round trip
//# stdout: level 9 on 4194304 bytes: same after the round trip
//# stdout: damaged: refused
/* Compresses 32 MB of generated data with zstd and takes them back, whole and as a stream. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zstd.h"

enum { SIZE = 32 << 20 };

/* Text-like data: words from a small dictionary, numbers, and now and then a stretch that does not compress. */
static void generate(unsigned char *data, size_t size) {
  static const char *const words[] = {"barley", "tablet", "canal", "seal", "scribe", "ziggurat", "reed", "flood"};
  uint64_t state = 88172645463325252u;
  size_t at = 0;
  while (at < size) {
    char piece[64];
    size_t length;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    if (state % 97 == 0) {
      for (length = 0; length < sizeof piece; length++)
        piece[length] = (char)(state >> (length % 8 * 8)) ^ (char)(length * state);
    } else {
      length = (size_t)snprintf(piece, sizeof piece, "%s %u\n", words[state % 8], (unsigned)(state >> 20) % 1000);
    }
    if (length > size - at)
      length = size - at;
    memcpy(data + at, piece, length);
    at += length;
  }
}

static void *must(void *pointer) {
  if (!pointer)
    abort();
  return pointer;
}

static size_t checked(size_t result) {
  if (ZSTD_isError(result)) {
    fprintf(stderr, "zstd: %s\n", ZSTD_getErrorName(result));
    exit(1);
  }
  return result;
}

static size_t compress_streamed(unsigned char *to, size_t capacity, const unsigned char *from, size_t size) {
  ZSTD_CCtx *context = must(ZSTD_createCCtx());
  ZSTD_outBuffer out = {to, capacity, 0};
  size_t at = 0;
  checked(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 3));
  checked(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1));
  while (at < size) {
    size_t piece = size - at < 100003 ? size - at : 100003;
    ZSTD_inBuffer in = {from + at, piece, 0};
    ZSTD_EndDirective end = at + piece == size ? ZSTD_e_end : ZSTD_e_continue;
    while (checked(ZSTD_compressStream2(context, &out, &in, end)) != 0 && end == ZSTD_e_end)
      ;
    at += in.pos;
  }
  ZSTD_freeCCtx(context);
  return out.pos;
}

static size_t expand_streamed(unsigned char *to, size_t capacity, const unsigned char *from, size_t size) {
  ZSTD_DCtx *context = must(ZSTD_createDCtx());
  ZSTD_outBuffer out = {to, capacity, 0};
  ZSTD_inBuffer in = {from, size, 0};
  while (in.pos < in.size)
    checked(ZSTD_decompressStream(context, &out, &in));
  ZSTD_freeDCtx(context);
  return out.pos;
}

int main(void) {
  size_t capacity = ZSTD_compressBound(SIZE);
  unsigned char *data = must(malloc(SIZE)), *packed = must(malloc(capacity)), *back = must(calloc(1, SIZE));
  size_t length;
  generate(data, SIZE);

  length = checked(ZSTD_compress(packed, capacity, data, SIZE, 1));
  checked(ZSTD_decompress(back, SIZE, packed, length));
  printf("level 1: %d bytes, %s, %s after the round trip\n", SIZE,
         ZSTD_findFrameCompressedSize(packed, length) == length ? "1 frame" : "several frames",
         memcmp(data, back, SIZE) == 0 && length < SIZE / 2 ? "same" : "not the same");

  memset(back, 0, SIZE);
  length = compress_streamed(packed, capacity, data, SIZE);
  expand_streamed(back, SIZE, packed, length);
  printf("level 3, streamed: %d bytes, %s, %s after the round trip\n", SIZE,
         ZSTD_findFrameCompressedSize(packed, length) == length ? "1 frame" : "several frames",
         memcmp(data, back, SIZE) == 0 ? "same" : "not the same");

  memset(back, 0, SIZE / 8);
  length = checked(ZSTD_compress(packed, capacity, data, SIZE / 8, 9));
  checked(ZSTD_decompress(back, SIZE, packed, length));
  printf("level 9 on %d bytes: %s after the round trip\n", SIZE / 8, memcmp(data, back, SIZE / 8) == 0 ? "same" : "not the same");

  memset(packed + length / 2, 0x5a, 1000);
  printf("damaged: %s\n", ZSTD_isError(ZSTD_decompress(back, SIZE, packed, length)) ? "refused" : "taken");
  free(data), free(packed), free(back);
  return 0;
}
