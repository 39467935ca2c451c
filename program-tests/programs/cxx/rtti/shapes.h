#include <memory>
#include <typeindex>

struct Shape {
  virtual ~Shape();
  virtual double area() const = 0;
};
struct Named {
  virtual ~Named() = default;
  const char *name = "named";
};
struct Circle : Shape, Named { double area() const override; };
struct Square : Shape { double area() const override { return 4; } };
std::unique_ptr<Shape> make_circle(), make_square(), make_hidden();
std::type_index circle_type(), int_type();
void throw_library_error();
