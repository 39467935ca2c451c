/* A SQL session against an in-memory database.
 *
 *   session            the built-in session: tables, an index, transactions, 100,000 rows, recursive queries
 *   session SQL...     each argument is executed
 *   session -          SQL is read from standard input
 *
 * Results are drawn as tables. The output depends on the SQL alone, so that two builds can be compared.
 *
 * Exit code: 0, 1 after an SQL error, 2 where the database itself cannot be had.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"

enum { COLUMNS_MAX = 16, ROWS_SHOWN_MAX = 40 };

/* One result set, kept as text until the widths of its columns are known. */
struct table {
  int columns;
  int rows;      /* rows kept in `cells` */
  int rows_left; /* rows that were counted but not kept */
  char **cells;  /* `columns` headings, then `rows` times `columns` values */
  int widths[COLUMNS_MAX];
  int numeric[COLUMNS_MAX];
};

/* Columns a UTF-8 string takes on the screen, for text without wide or combining characters. */
static int display_width(const char *text) {
  int width = 0;
  for (; *text; text++)
    width += ((unsigned char)*text & 0xC0) != 0x80;
  return width;
}

static void put_cell(struct table *table, int column, const char *text) {
  size_t index = (size_t)(table->rows + 1) * table->columns + column;
  char *copy = strdup(text);
  int width = display_width(text);
  if (!copy)
    abort();
  table->cells[index] = copy;
  if (width > table->widths[column])
    table->widths[column] = width;
}

static void take_headings(struct table *table, sqlite3_stmt *statement) {
  table->columns = sqlite3_column_count(statement);
  if (table->columns > COLUMNS_MAX)
    table->columns = COLUMNS_MAX;
  table->cells = calloc((size_t)(ROWS_SHOWN_MAX + 1) * table->columns, sizeof *table->cells);
  if (!table->cells)
    abort();
  table->rows = -1; /* headings are row -1, so that rows begin at 0 */
  for (int column = 0; column < table->columns; column++) {
    put_cell(table, column, sqlite3_column_name(statement, column));
    table->numeric[column] = 1;
  }
  table->rows = 0;
}

static void take_row(struct table *table, sqlite3_stmt *statement) {
  if (table->rows == ROWS_SHOWN_MAX) {
    table->rows_left++;
    return;
  }
  for (int column = 0; column < table->columns; column++) {
    const char *text = (const char *)sqlite3_column_text(statement, column);
    int type = sqlite3_column_type(statement, column);
    if (type == SQLITE_TEXT || type == SQLITE_BLOB)
      table->numeric[column] = 0;
    put_cell(table, column, text ? text : "NULL");
  }
  table->rows++;
}

static void draw_rule(const struct table *table, const char *left, const char *middle, const char *right) {
  fputs("  ", stdout);
  for (int column = 0; column < table->columns; column++) {
    fputs(column ? middle : left, stdout);
    for (int dash = 0; dash < table->widths[column] + 2; dash++)
      fputs("─", stdout);
  }
  puts(right);
}

static void draw_row(const struct table *table, int row) {
  fputs("  ", stdout);
  for (int column = 0; column < table->columns; column++) {
    const char *text = table->cells[(size_t)(row + 1) * table->columns + column];
    int padding = table->widths[column] - display_width(text);
    int right = row >= 0 && table->numeric[column];
    printf("│ %*s%s%*s ", right ? padding : 0, "", text, right ? 0 : padding, "");
  }
  puts("│");
}

static void draw(const struct table *table) {
  draw_rule(table, "┌", "┬", "┐");
  draw_row(table, -1);
  draw_rule(table, "├", "┼", "┤");
  for (int row = 0; row < table->rows; row++)
    draw_row(table, row);
  draw_rule(table, "└", "┴", "┘");
  if (table->rows_left)
    printf("  … and %d rows more\n", table->rows_left);
}

static void forget(struct table *table) {
  for (size_t cell = 0; cell < (size_t)(table->rows + 1) * table->columns; cell++)
    free(table->cells[cell]);
  free(table->cells);
}

/* The statement as the user wrote it, its lines under one another behind a prompt. */
static void echo(const char *sql, size_t length) {
  const char *prompt = "sql> ";
  while (length && (sql[length - 1] == '\n' || sql[length - 1] == ' '))
    length--;
  for (size_t at = 0; at < length;) {
    const char *end = memchr(sql + at, '\n', length - at);
    size_t line = end ? (size_t)(end - sql) - at : length - at;
    printf("%s%.*s\n", prompt, (int)line, sql + at);
    prompt = "...> ";
    at += line + 1;
  }
}

static int fail(sqlite3 *database, const char *what) {
  fflush(stdout);
  fprintf(stderr, "session: %s: %s\n", what, sqlite3_errmsg(database));
  return 1;
}

/* Runs one prepared statement to its end and shows what it yields. */
static int run_statement(sqlite3 *database, sqlite3_stmt *statement) {
  struct table table = {0};
  sqlite3_int64 changes_before = sqlite3_total_changes64(database);
  int shows_rows = sqlite3_column_count(statement) > 0;
  int status;
  if (shows_rows)
    take_headings(&table, statement);
  while ((status = sqlite3_step(statement)) == SQLITE_ROW)
    take_row(&table, statement);
  if (shows_rows) {
    if (status == SQLITE_DONE)
      draw(&table);
    forget(&table);
  } else if (status == SQLITE_DONE && sqlite3_total_changes64(database) != changes_before &&
             sqlite3_strnicmp(sqlite3_sql(statement), "CREATE", 6) != 0) {
    /* The total also counts what triggers and virtual tables write; the user asked for less. */
    sqlite3_int64 changes = sqlite3_changes64(database);
    if (changes)
      printf("  %lld row%s changed\n", (long long)changes, changes == 1 ? "" : "s");
  }
  return status == SQLITE_DONE ? 0 : fail(database, "execution");
}

static int run(sqlite3 *database, const char *sql) {
  while (*sql) {
    sqlite3_stmt *statement = NULL;
    const char *rest = NULL;
    int failed;
    sql += strspn(sql, " \t\r\n");
    if (sqlite3_prepare_v2(database, sql, -1, &statement, &rest) != SQLITE_OK)
      return fail(database, "preparation");
    if (statement) {
      echo(sql, (size_t)(rest - sql));
      failed = run_statement(database, statement);
      sqlite3_finalize(statement);
      if (failed)
        return failed;
    }
    sql = rest;
  }
  return 0;
}

/* SQL can call back into the program: the number of steps the Collatz sequence takes from n to 1. */
static void collatz(sqlite3_context *context, int count, sqlite3_value **values) {
  sqlite3_int64 n = sqlite3_value_int64(values[0]);
  int steps = 0;
  (void)count;
  if (n < 1) {
    sqlite3_result_error(context, "collatz: the argument must be positive", -1);
    return;
  }
  for (; n != 1; steps++)
    n = n % 2 ? 3 * n + 1 : n / 2;
  sqlite3_result_int(context, steps);
}

static char *read_all(FILE *file) {
  size_t length = 0, capacity = 4096;
  char *text = malloc(capacity);
  while (text) {
    length += fread(text + length, 1, capacity - length - 1, file);
    if (feof(file) || ferror(file)) {
      text[length] = 0;
      return text;
    }
    if (capacity - length < 2)
      text = realloc(text, capacity *= 2);
  }
  abort();
}

static const char *const session[] = {
    "CREATE TABLE city(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, river TEXT);\n"
    "CREATE TABLE tablet(\n"
    "  id INTEGER PRIMARY KEY, city INTEGER NOT NULL REFERENCES city, barley INTEGER NOT NULL, sealed TEXT);",

    "INSERT INTO city(name, river) VALUES\n"
    "  ('Uruk', 'Euphrates'), ('Ur', 'Euphrates'), ('Lagash', 'Tigris'), ('Nippur', 'Euphrates'), ('Eridu', NULL);",

    "BEGIN;\n"
    "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 100000)\n"
    "INSERT INTO tablet(city, barley, sealed)\n"
    "SELECT 1 + (i * 7919) % 5, (i * 48271) % 9973, printf('%04x', (i * 40503) % 65536) FROM n;\n"
    "COMMIT;",

    "CREATE INDEX tablet_by_city ON tablet(city, barley);\n"
    "ANALYZE;",

    "SELECT name, river, count(*) AS tablets, sum(barley) AS barley, round(avg(barley), 3) AS mean, max(sealed) AS seal\n"
    "FROM tablet JOIN city ON city.id = tablet.city GROUP BY city.id ORDER BY barley DESC;",

    "EXPLAIN QUERY PLAN SELECT max(barley) FROM tablet WHERE city = 3;",

    "SAVEPOINT flood;\n"
    "DELETE FROM tablet WHERE barley < 5000;\n"
    "SELECT count(*) AS tablets_left FROM tablet;\n"
    "ROLLBACK TO flood;\n"
    "RELEASE flood;\n"
    "SELECT count(*) AS tablets_again FROM tablet;",

    "SELECT name, barley, rank() OVER (ORDER BY barley DESC) AS place,\n"
    "       sum(barley) OVER (ORDER BY barley DESC ROWS UNBOUNDED PRECEDING) AS so_far\n"
    "FROM (SELECT city, sum(barley) AS barley FROM tablet WHERE id % 7 = 0 GROUP BY city) JOIN city ON id = city;",

    "WITH RECURSIVE\n"
    "  x(cx) AS (VALUES(-2.0) UNION ALL SELECT cx + 0.05 FROM x WHERE cx < 0.6),\n"
    "  y(cy) AS (VALUES(-1.0) UNION ALL SELECT cy + 0.125 FROM y WHERE cy < 1.0),\n"
    "  m(i, cx, cy, a, b) AS (\n"
    "    SELECT 0, cx, cy, 0.0, 0.0 FROM x, y UNION ALL\n"
    "    SELECT i + 1, cx, cy, a*a - b*b + cx, 2.0*a*b + cy FROM m WHERE a*a + b*b < 4.0 AND i < 28),\n"
    "  n(steps, cx, cy) AS (SELECT max(i), cx, cy FROM m GROUP BY cx, cy)\n"
    "SELECT group_concat(substr(' .-+*oO#', 1 + min(steps / 4, 7), 1), '') AS mandelbrot FROM n GROUP BY cy;",

    "CREATE VIRTUAL TABLE proverb USING fts5(text);\n"
    "INSERT INTO proverb VALUES ('he who has much silver may be happy'), ('he who has much barley may be glad'),\n"
    "  ('but he who has nothing at all may sleep');\n"
    "SELECT highlight(proverb, 0, '[', ']') AS found FROM proverb WHERE proverb MATCH 'much NOT silver OR sleep';",

    "SELECT value AS start, collatz(value) AS steps FROM json_each('[6, 27, 97, 871, 6171]');",

    "SELECT count(*) AS tablets, count(DISTINCT sealed) AS seals, total(barley) AS barley,\n"
    "       json_group_array(DISTINCT city) AS cities FROM tablet;",
    NULL};

int main(int argc, char **argv) {
  sqlite3 *database = NULL;
  int failed = 0;
  if (sqlite3_open(":memory:", &database) != SQLITE_OK ||
      sqlite3_create_function(database, "collatz", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, collatz, NULL, NULL)) {
    fail(database, "opening");
    return 2;
  }
  if (argc == 2 && strcmp(argv[1], "-") == 0) {
    char *sql = read_all(stdin);
    failed = run(database, sql);
    free(sql);
  } else if (argc > 1) {
    for (int argument = 1; argument < argc && !failed; argument++)
      failed = run(database, argv[argument]);
  } else {
    printf("SQLite %s, in memory\n", sqlite3_libversion());
    for (int step = 0; session[step] && !failed; step++) {
      putchar('\n');
      failed = run(database, session[step]);
    }
  }
  if (sqlite3_close(database) != SQLITE_OK)
    failed = fail(database, "closing");
  return failed;
}
