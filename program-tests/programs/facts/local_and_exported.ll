; stdout: 1 1 1 1
; A local function and its exported alias have one address, in data and in code.
target triple = "x86_64-pc-linux-gnu"

@exported = alias i32 (i32), ptr @local
@first = global ptr @local
@second = global ptr @exported
@third = global ptr null
@format = private constant [13 x i8] c"%d %d %d %d\0A\00"

declare i32 @printf(ptr, ...)

define internal i32 @local(i32 %x) noinline {
  %y = mul i32 %x, 3
  ret i32 %y
}

define void @take() noinline {
  store volatile ptr @local, ptr @third
  ret void
}

define i32 @is_same(ptr %one, ptr %other) noinline {
  %a = load volatile ptr, ptr %one
  %b = load volatile ptr, ptr %other
  %same = icmp eq ptr %a, %b
  %result = zext i1 %same to i32
  ret i32 %result
}

define i32 @main() {
  call void @take()
  %here = alloca ptr
  store volatile ptr @exported, ptr %here
  %a = call i32 @is_same(ptr @first, ptr @second)
  %b = call i32 @is_same(ptr @first, ptr @third)
  %c = call i32 @is_same(ptr @second, ptr @third)
  %d = call i32 @is_same(ptr %here, ptr @third)
  call i32 (ptr, ...) @printf(ptr @format, i32 %a, i32 %b, i32 %c, i32 %d)
  ret i32 0
}
