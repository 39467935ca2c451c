/* Runs the script that the first argument names, with the rest as its arguments, and offers it two functions:
 * `host.apply(f, ...)`, which calls back through C, and `host.fail(message)`, which raises an error from C: in Lua that
 * is a longjmp over the frames in between. */
#include <stdio.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static int apply(lua_State *state) {
  luaL_checktype(state, 1, LUA_TFUNCTION);
  lua_call(state, lua_gettop(state) - 1, LUA_MULTRET);
  return lua_gettop(state);
}

static int fail(lua_State *state) { return luaL_error(state, "from C: %s", luaL_checkstring(state, 1)); }

static int continued(lua_State *state, int status, lua_KContext context) {
  lua_pushinteger(state, (lua_Integer)context);
  lua_pushboolean(state, status == LUA_YIELD);
  return 2;
}

/* Yields across a C frame; the coroutine goes on in `continued`. */
static int pause_here(lua_State *state) { return lua_yieldk(state, 0, 42, continued); }

int main(int argc, char **argv) {
  static const luaL_Reg functions[] = {{"apply", apply}, {"fail", fail}, {"pause", pause_here}, {NULL, NULL}};
  lua_State *state = luaL_newstate();
  int failed;
  if (!state || argc < 2)
    return 2;
  luaL_openlibs(state);
  luaL_newlib(state, functions);
  lua_setglobal(state, "host");
  lua_newtable(state);
  for (int i = 2; i < argc; i++) {
    lua_pushstring(state, argv[i]);
    lua_rawseti(state, -2, i - 1);
  }
  lua_setglobal(state, "arg");
  failed = luaL_dofile(state, argv[1]);
  if (failed)
    fprintf(stderr, "lua: %s\n", lua_tostring(state, -1));
  lua_close(state);
  return failed ? 1 : 0;
}
