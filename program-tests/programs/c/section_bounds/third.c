#include "entry.h"
ENTRY static int in_third[3] = {8, 16, 32};
HOOK static int hook(void) { return 100; }
PUT(hook);
