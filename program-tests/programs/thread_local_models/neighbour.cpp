/* Another file that reaches one of the variables. */
extern "C" {
extern __thread int first;
void *where_else() { return &first; }
}
