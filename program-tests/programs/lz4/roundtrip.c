//# stdout: fast: same
//# stdout: high compression: same, smaller
//# stdout: frame with checksums: same
//# stdout: damaged frame: ERROR_contentChecksum_invalid
/* LZ4: both compressors, and the frame format with its checksums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lz4.h"
#include "lz4frame.h"
#include "lz4hc.h"

enum { SIZE = 8 << 20 };

static void generate(char *data) {
  unsigned state = 7;
  size_t at = 0;
  while (at < SIZE) {
    state = state * 1664525u + 1013904223u;
    int length = snprintf(data + at, SIZE - at, "%u measures of barley to %c;", (state >> 16) % 500, 'A' + (state >> 8) % 26);
    at += (size_t)length;
  }
}

static const char *same(const char *data, const char *back) { return memcmp(data, back, SIZE) == 0 ? "same" : "not the same"; }

int main(void) {
  LZ4F_preferences_t preferences = {.frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled}};
  size_t capacity = LZ4F_compressFrameBound(SIZE, &preferences);
  char *data = malloc(SIZE + 64), *packed = malloc(capacity), *back = calloc(1, SIZE);
  LZ4F_dctx *context = NULL;
  size_t length, read, written;
  int fast, high;
  generate(data);

  fast = LZ4_compress_default(data, packed, SIZE, (int)capacity);
  LZ4_decompress_safe(packed, back, fast, SIZE);
  printf("fast: %s\n", same(data, back));

  memset(back, 0, SIZE);
  high = LZ4_compress_HC(data, packed, SIZE, (int)capacity, 9);
  LZ4_decompress_safe(packed, back, high, SIZE);
  printf("high compression: %s, %s\n", same(data, back), high < fast ? "smaller" : "not smaller");

  memset(back, 0, SIZE);
  length = LZ4F_compressFrame(packed, capacity, data, SIZE, &preferences);
  for (int damaged = 0; damaged < 2; damaged++) {
    size_t result, at = 0, out = 0;
    if (damaged)
      packed[length - 1] ^= 1;
    LZ4F_createDecompressionContext(&context, LZ4F_VERSION);
    do {
      read = length - at, written = SIZE - out;
      result = LZ4F_decompress(context, back + out, &written, packed + at, &read, NULL);
      at += read, out += written;
    } while (!LZ4F_isError(result) && result != 0);
    if (damaged)
      printf("damaged frame: %s\n", LZ4F_isError(result) ? LZ4F_getErrorName(result) : "taken");
    else
      printf("frame with checksums: %s\n", same(data, back));
    LZ4F_freeDecompressionContext(context);
  }
  free(data), free(packed), free(back);
  return 0;
}
