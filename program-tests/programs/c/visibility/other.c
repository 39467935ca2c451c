#pragma GCC visibility push(hidden)
int hidden(void) { return 1; }
int hidden_variable = 2;
const char *basename(const char *path) { return path ? "mine" : "null"; }
#pragma GCC visibility pop
__attribute__((visibility("protected"))) int protected_function(void) { return 3; }
__attribute__((visibility("internal"))) int internal(void) { return 4; }
const char *call_index(void) { return basename("a/b"); }
