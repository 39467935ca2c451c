// packages: libsqlite3-dev
// archives: libsqlite3.a
// libraries: libm.so.6
#include <sqlite3.h>
#include <stdio.h>

static int row(void *count, int columns, char **values, char **names) {
    for (int i = 0; i < columns; i++) printf("%s=%s ", names[i], values[i] ? values[i] : "NULL");
    puts("");
    return ++*(int *)count > 5;
}

int main(void) {
    sqlite3 *db;
    char *message = NULL;
    int rows = 0;
    sqlite3_open(":memory:", &db);
    sqlite3_exec(db, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);"
                     "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<200) INSERT INTO t SELECT x, printf('%x',x*x) FROM n;", NULL, NULL, NULL);
    int code = sqlite3_exec(db, "SELECT b, count(*), round(avg(a),3) AS mean FROM t WHERE b LIKE '%9' GROUP BY substr(b,1,1) ORDER BY mean", row, &rows, &message);
    printf("%d %s\n", code, message ? message : "");
    sqlite3_free(message);
    code = sqlite3_exec(db, "SELECT json_extract('{\"a\":[1,2]}','$.a[1]'), nothing", row, &rows, &message);
    printf("%d %s\n", code, message);
    sqlite3_free(message);
    return sqlite3_close(db);
}
