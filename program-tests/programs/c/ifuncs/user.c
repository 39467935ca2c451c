int chosen(int x);
int sum(const int *values, int count);
int call_chosen(int x) { return chosen(x); }
int (*address_elsewhere(void))(int) { return chosen; }
int call_sum(void) {
  int values[100];
  for (int i = 0; i < 100; i++)
    values[i] = i;
  return sum(values, 100);
}
