enum { COUNT = 2048 };
typedef long function(long);
extern function *const main_functions[COUNT], *const second_functions[COUNT], *const third_functions[COUNT];
/* f_x(n) = n + 2x, for each x of three hexadecimal digits. */
#define F(x) __attribute__((noinline)) static long f_##x(long n) { return n + 2 * (0x##x); }
#define F4(x) F(x##0) F(x##1) F(x##2) F(x##3) F(x##4) F(x##5) F(x##6) F(x##7) F(x##8) F(x##9) F(x##a) F(x##b) F(x##c) F(x##d) F(x##e) F(x##f)
#define F8(x) F4(x##0) F4(x##1) F4(x##2) F4(x##3) F4(x##4) F4(x##5) F4(x##6) F4(x##7) F4(x##8) F4(x##9) F4(x##a) F4(x##b) F4(x##c) F4(x##d) F4(x##e) F4(x##f)
#define N(x) f_##x,
#define N4(x) N(x##0) N(x##1) N(x##2) N(x##3) N(x##4) N(x##5) N(x##6) N(x##7) N(x##8) N(x##9) N(x##a) N(x##b) N(x##c) N(x##d) N(x##e) N(x##f)
#define N8(x) N4(x##0) N4(x##1) N4(x##2) N4(x##3) N4(x##4) N4(x##5) N4(x##6) N4(x##7) N4(x##8) N4(x##9) N4(x##a) N4(x##b) N4(x##c) N4(x##d) N4(x##e) N4(x##f)
#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define DEFINE_TABLE(name) EACH(F8) function *const name[COUNT] = {EACH(N8)};
