-- Coroutines, protected calls, metatables, strings, garbage collection: what an embedded interpreter does all day.

local function section(name) print("-- " .. name) end

section "coroutines"
local function primes()
  return coroutine.wrap(function()
    local found = {}
    local n = 2
    while true do
      local prime = true
      for _, p in ipairs(found) do
        if p * p > n then break end
        if n % p == 0 then prime = false break end
      end
      if prime then found[#found + 1] = n coroutine.yield(n) end
      n = n + 1
    end
  end)
end
local next_prime, sum = primes(), 0
for _ = 1, 2000 do sum = sum + next_prime() end
print("sum of the first 2000 primes", sum)

local thread = coroutine.create(function(a)
  local b = coroutine.yield(a * 2)
  local context, yielded = host.pause()
  error({ code = a + b + context, yielded = yielded })
end)
print(coroutine.resume(thread, 10))
print(coroutine.resume(thread, 5))
local ok, problem = coroutine.resume(thread)
print(ok, problem.code, problem.yielded, coroutine.status(thread))

section "protected calls"
print(pcall(host.fail, "no barley"))
print(pcall(host.apply, function() error("deep", 0) end))
print(select("#", host.apply(function(...) return ... end, 1, nil, 3, nil)))
local depth = 0
local function recurse() depth = depth + 1 return 1 + recurse() end
local ok, message = pcall(recurse)
print(ok, message:match("stack overflow"), depth > 1000)
local function nested(n) if n == 0 then host.fail("bottom") end local ok, e = pcall(nested, n - 1) error(e, 0) end
print(pcall(nested, 100))
print(xpcall(function() local t = nil return t.x end, function(e) return "handled: " .. e:gsub("^.-:%d+: ", "") end))
for i = 1, 20000 do pcall(error, i) end

section "closing"
do
  local log = {}
  local function closing(name) return setmetatable({}, { __close = function(_, e) log[#log + 1] = name .. ":" .. tostring(e) end }) end
  print(pcall(function()
    local a <close> = closing "a"
    local b <close> = closing "b"
    error("thrown", 0)
  end))
  print(table.concat(log, " "))
end

section "metatables"
local vector = {}
vector.__index = vector
vector.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, vector) end
vector.__eq = function(a, b) return a.x == b.x and a.y == b.y end
vector.__tostring = function(a) return string.format("(%g, %g)", a.x, a.y) end
local function v(x, y) return setmetatable({ x = x, y = y }, vector) end
print(tostring(v(1, 2) + v(0.5, -7)), v(1, 1) == v(1, 1))

section "strings"
local text = ("the flood swept over; "):rep(200)
print(#text, select(2, text:gsub("%a+", string.upper)), text:sub(-8, -3))
print(string.format("%5.2f|%-8s|%08x|%q", math.pi, "Uruk", 0xBEEF, "a\nb\0c"))
print(string.pack("<i4d", 7, 0.5):byte(1, -1))
print(utf8.char(0x12000, 0x1202D), utf8.len("𒀀𒀭"))

section "numbers"
print(7 // 2, -7 // 2, 7 % -3, 2 ^ 0.5, 1 << 62, math.maxinteger + 1 == math.mininteger, 1e15, 0.1 + 0.2)

section "garbage"
local kept, freed = setmetatable({}, { __mode = "v" }), 0
for i = 1, 50000 do
  local t = setmetatable({ i }, { __gc = function() freed = freed + 1 end })
  kept[i % 100] = t
end
collectgarbage()
collectgarbage()
print("finalized", freed)

section "sorting"
local list, seed = {}, 42
for i = 1, 30000 do
  seed = (seed * 1103515245 + 12345) % 2147483648
  list[i] = seed
end
table.sort(list, function(a, b) return a > b end)
local sorted = true
for i = 2, #list do sorted = sorted and list[i - 1] >= list[i] end
print(sorted, list[1], list[#list])

section "arguments"
print(#arg, table.concat(arg, "|"))
error("the end", 0)
