; stdout: 13 23 33 6 42 18 7 55 65 1 99
; What is local to a module has names for others: each part finds what stands behind them.
target triple = "x86_64-pc-linux-gnu"

@values = internal global [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@third = alias i32, getelementptr inbounds ([4 x i32], ptr @values, i64 0, i64 2)
@all = alias [4 x i32], ptr @values
@all_again = hidden alias [4 x i32], ptr @all
@counter = internal thread_local global i32 5
@exported_counter = thread_local alias i32, ptr @counter
@unnamed_name = alias i32, ptr @0
@0 = private global i32 17
@format = private constant [34 x i8] c"%d %d %d %d %d %d %d %d %d %d %d\0A\00"
@table = global [2 x ptr] [ptr @first, ptr @second]
@seen = global i32 0

@first = alias i32 (i32), ptr @function
@second = alias i32 (i32), ptr @first
@third_name = internal alias i32 (i32), ptr @second
@chosen = ifunc i32 (i32), ptr @resolver
@chosen_here = internal ifunc i32 (i32), ptr @resolver
@chosen_too = alias i32 (i32), ptr @chosen_here
@always = alias i32 (i32), ptr @one_of_many

$one_of_many = comdat any

declare i32 @printf(ptr, ...)
declare ptr @llvm.threadlocal.address.p0(ptr)

define internal i32 @function(i32 %x) noinline {
  %y = add i32 %x, 10
  ret i32 %y
}

define internal i32 @fifty(i32 %x) {
  %y = add i32 %x, 50
  ret i32 %y
}

define internal ptr @resolver() {
  ret ptr @fifty
}

define internal i32 @one_of_many(i32 %x) noinline comdat {
  %y = mul i32 %x, 11
  ret i32 %y
}

define i32 @by_alias(i32 %x) noinline {
  %y = call i32 @first(i32 %x)
  ret i32 %y
}

define i32 @by_alias_of_alias(i32 %x) noinline {
  %y = call i32 @second(i32 %x)
  %z = add i32 %y, 10
  ret i32 %z
}

define i32 @by_local_alias(i32 %x) noinline {
  %y = call i32 @third_name(i32 %x)
  %z = add i32 %y, 20
  ret i32 %z
}

define i32 @at_an_offset() noinline {
  %v = load i32, ptr @third
  %w = mul i32 %v, 2
  ret i32 %w
}

define i32 @of_a_variable() noinline {
  store i32 40, ptr @all
  %v = load i32, ptr @values
  %slot = getelementptr [4 x i32], ptr @all_again, i64 0, i64 1
  %w = load i32, ptr %slot
  %sum = add i32 %v, %w
  ret i32 %sum
}

define i32 @without_a_name() noinline {
  %v = load i32, ptr @unnamed_name
  %w = add i32 %v, 1
  ret i32 %w
}

define i32 @of_a_thread() noinline {
  %own = call ptr @llvm.threadlocal.address.p0(ptr @exported_counter)
  %v = load i32, ptr %own
  %w = add i32 %v, 2
  store i32 %w, ptr %own
  ret i32 %w
}

define i32 @by_choice(i32 %x) noinline {
  %y = call i32 @chosen(i32 %x)
  ret i32 %y
}

define i32 @by_choice_and_alias(i32 %x) noinline {
  %y = call i32 @chosen_too(i32 %x)
  %z = add i32 %y, 10
  ret i32 %z
}

define i32 @are_one() noinline {
  %a = load ptr, ptr @table
  %is_one = icmp eq ptr %a, @third_name
  %result = zext i1 %is_one to i32
  ret i32 %result
}

define i32 @of_a_group(i32 %x) noinline {
  %y = call i32 @always(i32 %x)
  ret i32 %y
}

define i32 @main() {
  %a = call i32 @by_alias(i32 3)
  %b = call i32 @by_alias_of_alias(i32 3)
  %c = call i32 @by_local_alias(i32 3)
  %d = call i32 @at_an_offset()
  %e = call i32 @of_a_variable()
  %f = call i32 @without_a_name()
  %g = call i32 @of_a_thread()
  %h = call i32 @by_choice(i32 5)
  %i = call i32 @by_choice_and_alias(i32 5)
  %j = call i32 @are_one()
  %k = call i32 @of_a_group(i32 9)
  call i32 (ptr, ...) @printf(ptr @format, i32 %a, i32 %b, i32 %c, i32 %d, i32 %e, i32 %f, i32 %g, i32 %h, i32 %i, i32 %j, i32 %k)
  ret i32 0
}
