#include <wchar.h>
const char *beer(void) { return "beer"; }
const wchar_t *wide(void) { return L"Uruk𒀀"; }
double tenth(void) { return 0.1; }
