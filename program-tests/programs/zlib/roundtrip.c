//# stdout: crc32 of "123456789": cbf43926, adler32 of "Wikipedia": 11e60398
//# stdout: levels 1, 6, 9: same, same, same; each no larger than the one before
//# stdout: in pieces of 1,000 bytes: same
//# stdout: gzip file: 40000 lines, the last: line 39999 of the tablet
//# stdout: damaged: incorrect data check
/* zlib: checksums, one-shot and streamed round trips, a gzip file, a damaged stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zlib.h"

enum { SIZE = 3000000 };

static void generate(unsigned char *data) {
  unsigned state = 1;
  for (size_t at = 0; at < SIZE; at++) {
    state = state * 1664525u + 1013904223u;
    data[at] = (unsigned char)("etaoin shrdlu\n"[(state >> 24) % 14] + (state >> 30 == 3 && at % 5 == 0));
  }
}

static int expand_in_pieces(const unsigned char *packed, size_t length, unsigned char *back) {
  z_stream stream = {0};
  int status = inflateInit(&stream);
  size_t at = 0;
  stream.next_out = back, stream.avail_out = SIZE;
  while (status == Z_OK && at < length) {
    size_t piece = length - at < 1000 ? length - at : 1000;
    stream.next_in = (unsigned char *)packed + at, stream.avail_in = (unsigned)piece;
    status = inflate(&stream, Z_NO_FLUSH);
    at += piece - stream.avail_in;
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && stream.total_out == SIZE;
}

static void gzip_file(void) {
  char line[64] = "", last[64] = "";
  int lines = 0;
  gzFile file = gzopen("lines.gz", "wb7");
  for (int i = 0; i < 40000; i++)
    gzprintf(file, "line %d of the tablet\n", i);
  gzclose(file);
  file = gzopen("lines.gz", "rb");
  while (gzgets(file, line, sizeof line)) {
    lines++;
    strcpy(last, line);
  }
  gzclose(file);
  remove("lines.gz");
  printf("gzip file: %d lines, the last: %s", lines, last);
}

int main(void) {
  uLong capacity = compressBound(SIZE), lengths[3];
  unsigned char *data = malloc(SIZE), *packed = malloc(capacity), *back = malloc(SIZE);
  const char *same[3];
  static const int levels[3] = {1, 6, 9};
  printf("crc32 of \"123456789\": %lx, adler32 of \"Wikipedia\": %lx\n", crc32(0, (const Bytef *)"123456789", 9),
         adler32(1, (const Bytef *)"Wikipedia", 9));
  generate(data);
  for (int i = 0; i < 3; i++) {
    uLong length = capacity, size = SIZE;
    memset(back, 0, SIZE);
    same[i] = compress2(packed, &length, data, SIZE, levels[i]) == Z_OK &&
                      uncompress(back, &size, packed, length) == Z_OK && memcmp(data, back, SIZE) == 0
                  ? "same"
                  : "not the same";
    lengths[i] = length;
  }
  printf("levels 1, 6, 9: %s, %s, %s; each %s than the one before\n", same[0], same[1], same[2],
         lengths[0] >= lengths[1] && lengths[1] >= lengths[2] ? "no larger" : "larger");
  printf("in pieces of 1,000 bytes: %s\n",
         expand_in_pieces(packed, lengths[2], back) && memcmp(data, back, SIZE) == 0 ? "same" : "not the same");
  gzip_file();
  {
    z_stream stream = {0};
    packed[lengths[2] - 1] ^= 1;
    inflateInit(&stream);
    stream.next_in = packed, stream.avail_in = (unsigned)lengths[2], stream.next_out = back, stream.avail_out = SIZE;
    inflate(&stream, Z_FINISH);
    printf("damaged: %s\n", stream.msg ? stream.msg : "taken");
    inflateEnd(&stream);
  }
  free(data), free(packed), free(back);
  return 0;
}
