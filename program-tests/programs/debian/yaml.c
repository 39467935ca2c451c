// packages: libyaml-dev
// archives: libyaml.a
#include <stdio.h>
#include <string.h>
#include <yaml.h>

int main(void) {
    const char *documents[] = {"city: Uruk\nrivers: [Euphrates, &t Tigris, *t]\nwalls:\n  - |\n    baked\n    brick\n", "a: [1, 2\nb: }"};
    for (int i = 0; i < 2; i++) {
        yaml_parser_t parser;
        yaml_event_t event;
        yaml_parser_initialize(&parser);
        yaml_parser_set_input_string(&parser, (const unsigned char *)documents[i], strlen(documents[i]));
        for (int done = 0; !done; yaml_event_delete(&event)) {
            if (!yaml_parser_parse(&parser, &event)) {
                printf("error %d: %s, line %zu\n", parser.error, parser.problem, parser.problem_mark.line);
                break;
            }
            printf("%d", event.type);
            if (event.type == YAML_SCALAR_EVENT) printf(" %s", event.data.scalar.value);
            puts("");
            done = event.type == YAML_STREAM_END_EVENT;
        }
        yaml_parser_delete(&parser);
    }
    return 0;
}
