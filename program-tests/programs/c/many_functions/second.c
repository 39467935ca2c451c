#include "many.h"
DEFINE_TABLE(second_functions)
