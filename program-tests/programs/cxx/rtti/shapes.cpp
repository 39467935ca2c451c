#include "shapes.h"
#include <stdexcept>

Shape::~Shape() = default;
double Circle::area() const { return 3; }
namespace {
struct Hidden : Shape { double area() const override { return 2; } };
} // namespace
std::unique_ptr<Shape> make_circle() { return std::make_unique<Circle>(); }
std::unique_ptr<Shape> make_square() { return std::make_unique<Square>(); }
std::unique_ptr<Shape> make_hidden() { return std::make_unique<Hidden>(); }
std::type_index circle_type() { return typeid(Circle); }
std::type_index int_type() { return typeid(int); }
void throw_library_error() { throw std::runtime_error("library"); }
