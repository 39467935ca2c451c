// packages: libpng-dev zlib1g-dev
// archives: libpng.a libz.a
// libraries: libm.so.6
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static unsigned char file[20000];
static size_t written, taken;
static void put(png_structp png, png_bytep bytes, size_t count) {
    (void)png;
    memcpy(file + written, bytes, count);
    written += count;
}
static void flush(png_structp png) { (void)png; }
static void get(png_structp png, png_bytep bytes, size_t count) {
    if (taken + count > written) png_error(png, "no more bytes");
    memcpy(bytes, file + taken, count);
    taken += count;
}

int main(void) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, NULL, put, flush);
    png_set_IHDR(png, info, 32, 16, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_ADAM7, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_gAMA(png, info, 1 / 2.2);
    png_write_info(png, info);
    unsigned char pixels[16][96];
    unsigned char *rows[16];
    for (int y = 0; y < 16; y++)
        for (int x = 0; x < 96; x++) rows[y] = pixels[y], pixels[y][x] = (unsigned char)(x * y);
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    printf("%zu bytes, crc %08lx\n", written, crc32(0, file, (unsigned)written));
    for (int cut = 0; cut < 2; cut++) {
        taken = 0, written -= cut ? 20 : 0;
        png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
        info = png_create_info_struct(png);
        if (setjmp(png_jmpbuf(png))) {
            puts("left by longjmp");
        } else {
            png_set_read_fn(png, NULL, get);
            png_read_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
            double gamma = 0;
            png_get_gAMA(png, info, &gamma);
            printf("%ux%u, gamma %.5f, pixel %d\n", png_get_image_width(png, info), png_get_image_height(png, info), gamma,
                   png_get_rows(png, info)[15][95]);
        }
        png_destroy_read_struct(&png, &info, NULL);
    }
    return 0;
}
