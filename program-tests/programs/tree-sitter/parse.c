//# stdout: (document (object (pair key: (string (string_content)) value: (array (number) (number) (true) (null)))))
//# stdout: large: 20001 nodes of arrays and objects, 60000 numbers, no error
//# stdout: edited: 20001 nodes of arrays and objects, 60001 numbers, no error
//# stdout: broken: has an error, (document (object (pair key: (string (string_content)) (ERROR (UNEXPECTED '!')) value: (number))))
/* Parses JSON with tree-sitter: a small text, a large one, the large one again after an edit, and a broken one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree_sitter/api.h"

const TSLanguage *tree_sitter_json(void);

static void count(TSNode root, const char *what) {
  int composite = 0, numbers = 0;
  TSTreeCursor cursor = ts_tree_cursor_new(root);
  for (;;) {
    const char *type = ts_node_type(ts_tree_cursor_current_node(&cursor));
    composite += strcmp(type, "array") == 0 || strcmp(type, "object") == 0;
    numbers += strcmp(type, "number") == 0;
    if (ts_tree_cursor_goto_first_child(&cursor))
      continue;
    while (!ts_tree_cursor_goto_next_sibling(&cursor))
      if (!ts_tree_cursor_goto_parent(&cursor)) {
        ts_tree_cursor_delete(&cursor);
        printf("%s: %d nodes of arrays and objects, %d numbers, %s\n", what, composite, numbers,
               ts_node_has_error(root) ? "an error" : "no error");
        return;
      }
  }
}

static TSTree *parse(TSParser *parser, TSTree *old, const char *text) {
  return ts_parser_parse_string(parser, old, text, (uint32_t)strlen(text));
}

int main(void) {
  TSParser *parser = ts_parser_new();
  TSTree *tree;
  char *shape, *large = malloc(4 << 20), *at = large;
  if (!large || !ts_parser_set_language(parser, tree_sitter_json()))
    return 2;

  tree = parse(parser, NULL, "{\"a\": [1, -2.5e3, true, null]}");
  shape = ts_node_string(ts_tree_root_node(tree));
  puts(shape);
  free(shape), ts_tree_delete(tree);

  at += sprintf(at, "[");
  for (int i = 0; i < 10000; i++)
    at += sprintf(at, "%s{\"id\": %d, \"p\": [%d, %d, 0.5, 7e2], \"n\": %d}", i ? ", " : "", i, i * 2, i * 3, i % 7);
  sprintf(at, "]");
  tree = parse(parser, NULL, large);
  count(ts_tree_root_node(tree), "large");

  /* `[{...` becomes `[8,{...`: the rest of the old tree is reused. */
  memmove(large + 3, large + 1, strlen(large + 1) + 1);
  memcpy(large + 1, "8,", 2);
  {
    TSInputEdit edit = {.start_byte = 1, .old_end_byte = 1, .new_end_byte = 3, .start_point = {0, 1}, .old_end_point = {0, 1}, .new_end_point = {0, 3}};
    TSTree *edited;
    ts_tree_edit(tree, &edit);
    edited = parse(parser, tree, large);
    count(ts_tree_root_node(edited), "edited");
    ts_tree_delete(tree), ts_tree_delete(edited);
  }

  tree = parse(parser, NULL, "{\"a\": ! 1}");
  shape = ts_node_string(ts_tree_root_node(tree));
  printf("broken: %s, %s\n", ts_node_has_error(ts_tree_root_node(tree)) ? "has an error" : "has no error", shape);
  free(shape), ts_tree_delete(tree), ts_parser_delete(parser), free(large);
  return 0;
}
