//# stdout: hidden function: 1, hidden variable: 2
//# stdout: protected: 3
//# stdout: internal: 4
//# stdout: hidden weak, absent: null
//# stdout: libc's name hidden here: mine
/* Hidden symbols are found by other files of the same program, and may have a name that libc uses too. */
#include <stdio.h>
#include <unistd.h>

__attribute__((visibility("hidden"))) int hidden(void);
__attribute__((visibility("hidden"))) extern int hidden_variable;
__attribute__((visibility("protected"))) int protected_function(void);
__attribute__((visibility("internal"))) int internal(void);
__attribute__((visibility("hidden"), weak)) int absent(void);
const char *call_index(void);

int main(void) {
  printf("hidden function: %d, hidden variable: %d\n", hidden(), hidden_variable);
  printf("protected: %d\n", protected_function());
  printf("internal: %d\n", internal());
  printf("hidden weak, absent: %s\n", absent ? "there" : "null");
  printf("libc's name hidden here: %s\n", call_index());
  return 0;
}
