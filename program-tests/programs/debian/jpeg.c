// packages: libjpeg62-turbo-dev
// archives: libjpeg.a
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

int main(void) {
    unsigned char *file = NULL, row[96];
    unsigned long size = 0;
    struct jpeg_error_mgr errors;
    struct jpeg_compress_struct to = {.err = jpeg_std_error(&errors)};
    jpeg_create_compress(&to);
    jpeg_mem_dest(&to, &file, &size);
    to.image_width = 32, to.image_height = 32, to.input_components = 3, to.in_color_space = JCS_RGB;
    jpeg_set_defaults(&to);
    jpeg_set_quality(&to, 90, TRUE);
    jpeg_start_compress(&to, TRUE);
    for (int y = 0; y < 32; y++) {
        for (int x = 0; x < 96; x++) row[x] = (unsigned char)(x * 2 + y * 3);
        JSAMPROW rows = row;
        jpeg_write_scanlines(&to, &rows, 1);
    }
    jpeg_finish_compress(&to);
    jpeg_destroy_compress(&to);
    printf("%lu bytes\n", size);
    // Damage in the middle is a warning on stderr, and the library has assembly for several processors.
    for (int damaged = 0; damaged < 2; damaged++) {
        struct jpeg_decompress_struct from = {.err = jpeg_std_error(&errors)};
        jpeg_create_decompress(&from);
        jpeg_mem_src(&from, file, damaged ? size - 200 : size);
        jpeg_read_header(&from, TRUE);
        jpeg_start_decompress(&from);
        unsigned sum = 0;
        for (JSAMPROW rows = row; from.output_scanline < from.output_height;) {
            jpeg_read_scanlines(&from, &rows, 1);
            for (int x = 0; x < 96; x++) sum = sum * 31 + row[x];
        }
        jpeg_finish_decompress(&from);
        printf("sum %u, warnings %ld\n", sum, errors.num_warnings);
        jpeg_destroy_decompress(&from);
    }
    free(file);
    return 0;
}
