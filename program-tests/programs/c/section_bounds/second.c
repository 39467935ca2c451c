#include "entry.h"
ENTRY int in_second = 4;
HOOK static int hook(void) { return 10; }
PUT(hook);
int count_elsewhere(void) { return (int)(__stop_entries - __start_entries); }
