// packages: liblua5.4-dev
// archives: liblua5.4.a
// libraries: libm.so.6
#include <lua5.4/lauxlib.h>
#include <lua5.4/lualib.h>
#include <stdio.h>

static int twice(lua_State *state) {
    lua_pushnumber(state, 2 * luaL_checknumber(state, 1));
    return 1;
}

int main(void) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    lua_register(state, "twice", twice);
    const char *chunks[] = {
        "local t = {} for i = 1, 10 do t[i] = twice(i) end print(table.concat(t, ' '), math.type(t[1]))",
        "local c = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) error('left with ' .. b) end) print(c(1)) c('word')",
        "print(string.format('%q %5.2f', 'line\\n', math.pi), os.getenv('NO_SUCH'), #arg)",
        "x = = 1",
    };
    for (int i = 0; i < 4; i++)
        if (luaL_dostring(state, chunks[i])) printf("error: %s\n", lua_tostring(state, -1));
    lua_close(state);
    return 0;
}
