; stdout: 7 9 4 1 1 1 5
; Aliases of variables, local ones, thread-local ones and functions are what they name; a weak alias may be as well.
target triple = "x86_64-pc-linux-gnu"

@variable = global i32 1
@same = alias i32, ptr @variable
@again = alias i32, ptr @same
@local = internal global i32 2
@exported = alias i32, ptr @local
@weak = weak alias i32, ptr @variable
@own = thread_local global i32 3
@own_too = thread_local alias i32, ptr @own
@format = private constant [22 x i8] c"%d %d %d %d %d %d %d\0A\00"

@function_too = alias i32 (i32), ptr @function

declare i32 @printf(ptr, ...)
declare ptr @llvm.threadlocal.address.p0(ptr)

define i32 @function(i32 %x) noinline {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @through_a_chain(i32 %value) noinline {
  store i32 %value, ptr @variable
  %more = add i32 %value, 2
  store i32 %more, ptr @again
  %seen = load i32, ptr @variable
  ret i32 %seen
}

define i32 @through_a_local(i32 %value) noinline {
  store i32 %value, ptr @local
  %more = add i32 %value, 3
  store i32 %more, ptr @exported
  %seen = load i32, ptr @local
  ret i32 %seen
}

define i32 @through_a_thread_local(i32 %value) noinline {
  %own = call ptr @llvm.threadlocal.address.p0(ptr @own)
  store i32 %value, ptr %own
  %own_too = call ptr @llvm.threadlocal.address.p0(ptr @own_too)
  %more = add i32 %value, 1
  store i32 %more, ptr %own_too
  %seen = load i32, ptr %own
  ret i32 %seen
}

define i32 @is_one_variable() noinline {
  %is_one = icmp eq ptr @variable, @same
  %result = zext i1 %is_one to i32
  ret i32 %result
}

define i32 @is_weakly_one() noinline {
  %is_one = icmp eq ptr @variable, @weak
  %result = zext i1 %is_one to i32
  ret i32 %result
}

define i32 @is_one_function() noinline {
  %is_one = icmp eq ptr @function, @function_too
  %result = zext i1 %is_one to i32
  ret i32 %result
}

define i32 @main() {
  %chain = call i32 @through_a_chain(i32 5)
  %local = call i32 @through_a_local(i32 6)
  %own = call i32 @through_a_thread_local(i32 3)
  %one = call i32 @is_one_variable()
  %weakly = call i32 @is_weakly_one()
  %function = call i32 @is_one_function()
  %called = call i32 @function_too(i32 4)
  call i32 (ptr, ...) @printf(ptr @format, i32 %chain, i32 %local, i32 %own, i32 %one, i32 %weakly, i32 %function, i32 %called)
  ret i32 0
}
