// packages: libpcre2-dev
// archives: libpcre2-8.a
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char *patterns[] = {"(?<year>\\d{4})-(\\d\\d)", "(a+)+b", "\\p{Lu}\\w+(?=ia)", "(["};
    const char *subject = "Uruk, in Mesopotamia, about 2900-01, aaaaaaaaab";
    for (int i = 0; i < 4; i++) {
        int error;
        size_t at;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_UCP, &error, &at, NULL);
        if (!code) {
            unsigned char text[120];
            pcre2_get_error_message(error, text, sizeof text);
            printf("%s at %zu\n", text, at);
            continue;
        }
        // Once interpreted, once by the library's own compiler, whose code lies beside ours.
        for (int compiled = 0; compiled < 2; compiled++) {
            if (compiled) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
            pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
            int groups = pcre2_match(code, (PCRE2_SPTR)subject, strlen(subject), 0, 0, match, NULL);
            size_t *range = pcre2_get_ovector_pointer(match);
            printf("%d groups: %.*s\n", groups, (int)(range[1] - range[0]), subject + range[0]);
            pcre2_match_data_free(match);
        }
        pcre2_code_free(code);
    }
    return 0;
}
