; stdout: 44
; Collectors of other languages have tables and symbols of their own beside the code.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [4 x i8] c"%d\0A\00"

declare i32 @printf(ptr, ...)

define i32 @ocaml(i32 %x) noinline gc "ocaml" {
  %y = call i32 @erlang(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}

define i32 @erlang(i32 %x) noinline gc "erlang" {
  %y = call i32 @coreclr(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}

define internal i32 @coreclr(i32 %x) noinline gc "coreclr" {
  %y = call i32 @uncollected(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}

define i32 @uncollected(i32 %x) noinline {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @main() {
  %sum = call i32 @ocaml(i32 40)
  call i32 (ptr, ...) @printf(ptr @format, i32 %sum)
  ret i32 0
}
