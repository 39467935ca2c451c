; stdout: 650 42 80 15 39
; Registers that other conventions use: all of `preserve_none`, the static chain, Swift's.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [16 x i8] c"%d %d %d %d %d\0A\00"

declare i32 @printf(ptr, ...)

define preserve_nonecc i64 @twelve(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, i64 %i, i64 %j, i64 %k, i64 %l) noinline {
  %b2 = mul i64 %b, 2
  %c3 = mul i64 %c, 3
  %d4 = mul i64 %d, 4
  %e5 = mul i64 %e, 5
  %f6 = mul i64 %f, 6
  %g7 = mul i64 %g, 7
  %h8 = mul i64 %h, 8
  %i9 = mul i64 %i, 9
  %j10 = mul i64 %j, 10
  %k11 = mul i64 %k, 11
  %l12 = mul i64 %l, 12
  %s1 = add i64 %a, %b2
  %s2 = add i64 %s1, %c3
  %s3 = add i64 %s2, %d4
  %s4 = add i64 %s3, %e5
  %s5 = add i64 %s4, %f6
  %s6 = add i64 %s5, %g7
  %s7 = add i64 %s6, %h8
  %s8 = add i64 %s7, %i9
  %s9 = add i64 %s8, %j10
  %s10 = add i64 %s9, %k11
  %s11 = add i64 %s10, %l12
  ret i64 %s11
}

define i32 @nested(ptr nest %chain, i32 %x) noinline {
  %v = load i32, ptr %chain
  %sum = add i32 %v, %x
  ret i32 %sum
}

define swiftcc i32 @swift(ptr swiftself %self, i32 %x) noinline {
  %v = load i32, ptr %self
  %product = mul i32 %v, %x
  ret i32 %product
}

define tailcc i32 @tail(i32 %a, i32 %b, i32 %c, i32 %d, i32 %e, i32 %f, i32 %g, i32 %h) noinline {
  %sum = add i32 %g, %h
  ret i32 %sum
}

define swifttailcc i32 @async(ptr swiftasync %context, i32 %x) noinline {
  %v = load i32, ptr %context
  %difference = sub i32 %v, %x
  ret i32 %difference
}

define i32 @main() {
  %forty = alloca i32
  store i32 40, ptr %forty
  %sum = call preserve_nonecc i64 @twelve(i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12)
  %nested = call i32 @nested(ptr nest %forty, i32 2)
  %swift = call swiftcc i32 @swift(ptr swiftself %forty, i32 2)
  %tail = call tailcc i32 @tail(i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8)
  %async = call swifttailcc i32 @async(ptr swiftasync %forty, i32 1)
  call i32 (ptr, ...) @printf(ptr @format, i64 %sum, i32 %nested, i32 %swift, i32 %tail, i32 %async)
  ret i32 0
}
