//# stdin: 3
//# stdin: 10 20.5 thirty
//# stdin: the rest of the input
//# stdin: on two lines
//# stdout: 3: 10 20.50 thirty
//# stdout: line 1: the rest of the input
//# stdout: line 2: on two lines
//# stdout: end of file: yes
/* Standard input belongs to the program. */
#include <stdio.h>
#include <string.h>

int main(void) {
  int count, first, number = 0;
  double second;
  char third[20], line[100];
  if (scanf("%d %d %lf %19s ", &count, &first, &second, third) != 4)
    return 1;
  printf("%d: %d %.2f %s\n", count, first, second, third);
  while (fgets(line, sizeof line, stdin))
    printf("line %d: %s", ++number, line);
  printf("end of file: %s\n", feof(stdin) ? "yes" : "no");
  return 0;
}
