// packages: libgc-dev
// archives: libgc.a
#include <gc.h>
#include <stdio.h>

struct node { struct node *next; int value; };
// Reachable only from a variable of the program: the collector finds it by the program's own headers.
static struct node *kept;
static int finalized;
static void gone(void *object, void *data) { (void)object, (void)data, finalized++; }

int main(void) {
    GC_INIT();
    for (int i = 0; i < 1000; i++) {
        struct node *node = GC_MALLOC(sizeof *node);
        node->value = i, node->next = kept, kept = node;
    }
    for (int i = 0; i < 200000; i++) {
        char *garbage = GC_MALLOC(64);
        garbage[i % 64] = 1;
        if (i % 10000 == 0) GC_register_finalizer(garbage, gone, NULL, NULL, NULL);
    }
    GC_gcollect();
    GC_invoke_finalizers();
    long sum = 0;
    for (struct node *node = kept; node; node = node->next) sum += node->value;
    printf("sum %ld, heap below 16 MB: %d, finalized: %d\n", sum, GC_get_heap_size() < 16 << 20, finalized > 5);
    return 0;
}
