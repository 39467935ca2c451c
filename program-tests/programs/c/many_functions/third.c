#include "many.h"
DEFINE_TABLE(third_functions)
