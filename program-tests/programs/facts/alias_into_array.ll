; stdout: 9 8 9
; An alias into the middle of an array is that element: a store through the one is seen by a load of the other.
target triple = "x86_64-pc-linux-gnu"

@numbers = global [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 16
@third = alias i32, getelementptr inbounds ([4 x i32], ptr @numbers, i64 0, i64 2)
@format = private constant [10 x i8] c"%d %d %d\0A\00"

declare i32 @printf(ptr, ...)

define i32 @store_both(i32 %value) noinline {
  store i32 %value, ptr getelementptr inbounds ([4 x i32], ptr @numbers, i64 0, i64 2)
  %more = add i32 %value, 2
  store i32 %more, ptr @third
  %seen = load i32, ptr getelementptr inbounds ([4 x i32], ptr @numbers, i64 0, i64 2)
  ret i32 %seen
}

define i64 @distance() noinline {
  %distance = sub i64 ptrtoint (ptr @third to i64), ptrtoint (ptr @numbers to i64)
  ret i64 %distance
}

define i32 @main() {
  %seen = call i32 @store_both(i32 7)
  %distance = call i64 @distance()
  %third = load i32, ptr @third
  call i32 (ptr, ...) @printf(ptr @format, i32 %seen, i64 %distance, i32 %third)
  ret i32 0
}
