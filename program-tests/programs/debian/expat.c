// packages: libexpat1-dev
// archives: libexpat.a
#include <expat.h>
#include <stdio.h>
#include <string.h>

static void begin(void *depth, const char *name, const char **attributes) {
    printf("%*s<%s>", 2 * (*(int *)depth)++, "", name);
    for (; *attributes; attributes += 2) printf(" %s=%s", attributes[0], attributes[1]);
    puts("");
}
static void end(void *depth, const char *name) { printf("%*s</%s>\n", 2 * --*(int *)depth, "", name); }

int main(void) {
    int depth = 0;
    const char *documents[] = {"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY e 'deep'>]><a b='1'><c>x&e;y</c><d/></a>", "<a><b></a>"};
    for (int i = 0; i < 2; i++) {
        XML_Parser parser = XML_ParserCreate(NULL);
        XML_SetUserData(parser, &depth);
        XML_SetElementHandler(parser, begin, end);
        enum XML_Status status = XML_Parse(parser, documents[i], (int)strlen(documents[i]), 1);
        printf("%d: %s\n", status, status == XML_STATUS_OK ? "good" : XML_ErrorString(XML_GetErrorCode(parser)));
        XML_ParserFree(parser);
    }
    return 0;
}
